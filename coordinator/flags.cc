#include "coordinator/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace ringmaster::coordinator {
namespace {

constexpr int kUsageError = 2;
constexpr int kMinLeaseMs = 300;  // a lease must outlive a few heartbeats
constexpr int kMaxLeaseMs = 3'600'000;
constexpr int kMinSilenceMs = 100;
constexpr int kMaxSilenceMs = 60'000;

Status CheckSilence(int silence_ms, int lease_ms) {
  if (silence_ms <= lease_ms) return absl::OkStatus();
  return InvalidArgument(
      "--silence-ms {} is longer than --worker-lease-ms {}: the session would end first; raise "
      "both",
      silence_ms, lease_ms);
}

}  // namespace

ParsedFlags ParseFlags(int argc, char** argv) {
  ParsedFlags parsed;
  Flags& flags = parsed.flags;
  std::string listen = "127.0.0.1:7700";
  int lease_ms = static_cast<int>(flags.options.lease.count());
  int silence_ms = static_cast<int>(flags.options.silence.count());
  bool insecure = false;

  CLI::App app(
      "ringmaster: the coordinator. It queues training jobs, starts them on attached workers "
      "and keeps their checkpoints.");
  app.add_option("--listen", listen, "HOST:PORT; port 0 picks a free one and prints it")
      ->capture_default_str();
  app.add_option("--data-dir", flags.data_dir, "folder of jobs and checkpoints, on a local disk")
      ->required();
  app.add_flag("--insecure", insecure, "listen on an address that is not loopback, without TLS");
  app.add_option("--worker-lease-ms", lease_ms, "silence after which a worker's session is ended")
      ->check(CLI::Range(kMinLeaseMs, kMaxLeaseMs))
      ->capture_default_str();
  app.add_option("--silence-ms", silence_ms,
                 "silence after which a job goes on without a worker; wider for a slow network")
      ->check(CLI::Range(kMinSilenceMs, kMaxSilenceMs))
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
  flags.options.silence = std::chrono::milliseconds(silence_ms);
  // Heartbeats come several times in it, however short it is.
  flags.options.heartbeat = std::min(flags.options.heartbeat, flags.options.silence / 4);
  if (status.ok()) status = CheckBind(flags.listen, flags.insecure);
  if (status.ok()) status = CheckSilence(silence_ms, lease_ms);
  if (!status.ok()) {
    fmt::print(stderr, "ringmaster: {}\n", Message(status));
    parsed.exit = true;
    parsed.exit_code = kUsageError;
  }
  return parsed;
}

}  // namespace ringmaster::coordinator
