#include "coordinator/flags.h"

#include <CLI/CLI.hpp>

namespace ringmaster::coordinator {
namespace {

constexpr int kUsageError = 2;
constexpr int kMinLeaseMs = 300;  // a lease must outlive a few heartbeats
constexpr int kMaxLeaseMs = 3'600'000;

}  // namespace

ParsedFlags ParseFlags(int argc, char** argv) {
  ParsedFlags parsed;
  Flags& flags = parsed.flags;
  std::string listen = "127.0.0.1:7700";
  int lease_ms = static_cast<int>(flags.options.lease.count());
  bool insecure = false;

  CLI::App app(
      "ringmaster: the coordinator. It queues training jobs, starts them on attached workers "
      "and keeps their checkpoints.");
  app.add_option("--listen", listen, "HOST:PORT; port 0 picks a free one and prints it")
      ->capture_default_str();
  app.add_option("--data-dir", flags.data_dir, "folder of jobs and checkpoints, on a local disk")
      ->required();
  app.add_flag("--insecure", insecure, "listen on an address that is not loopback, without TLS");
  app.add_option("--worker-lease-ms", lease_ms, "silence after which a worker is lost")
      ->check(CLI::Range(kMinLeaseMs, kMaxLeaseMs))
      ->capture_default_str();

  // CLI11 throws; its exceptions end here.
  Status status;
  try {
    app.parse(argc, argv);
    const StatusOr<Address> address = ParseAddress(listen, "--listen");
    status = address.status();
    if (address.ok()) flags.listen = *address;
  } catch (const CLI::ParseError& error) {
    parsed.exit = true;
    parsed.exit_code = app.exit(error) == 0 ? 0 : kUsageError;
    return parsed;
  }
  flags.insecure = insecure ? InsecureBind::kAllow : InsecureBind::kRefuse;
  flags.options.lease = std::chrono::milliseconds(lease_ms);
  if (status.ok()) status = CheckBind(flags.listen, flags.insecure);
  if (!status.ok()) {
    fmt::print(stderr, "ringmaster: {}\n", Message(status));
    parsed.exit = true;
    parsed.exit_code = kUsageError;
  }
  return parsed;
}

}  // namespace ringmaster::coordinator
