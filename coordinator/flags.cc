#include "coordinator/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>

#include "common/amount.h"
#include "common/build_id.h"

namespace ringmaster::coordinator {
namespace {

using std::chrono::milliseconds;

constexpr int kUsageError = 2;
// One for each worker that may attach, and a quarter more for everybody else.
constexpr size_t kDefaultConnections = 5'120;
constexpr int kMaxConnections = 1'000'000;
// A lease must outlive a few heartbeats.
constexpr DurationRange kLease{milliseconds(300), std::chrono::hours(1)};
// They are renewed after two thirds of it; files are looked at once a second.
constexpr DurationRange kCertificateLife{std::chrono::seconds(30), std::chrono::hours(90 * 24)};
constexpr std::chrono::hours kLongestOverlap{365 * 24};
constexpr DurationRange kSilence{milliseconds(100), std::chrono::minutes(1)};

struct RawFlags {
  explicit RawFlags(const Options& defaults)
      : lease(ExactDuration(defaults.lease)), silence(ExactDuration(defaults.silence)) {}
  std::string listen = "127.0.0.1:7700";
  std::string lease;
  std::string silence;
  std::string certificate_life = "168h";
  std::string checkpoint_quota;
  std::string authority_overlap;
};

Status Finish(const RawFlags& raw, Flags* flags) {
  RING_ASSIGN_OR_RETURN(flags->listen, ParseAddress(raw.listen, "--listen"));
  const bool any = flags->listen.host == "0.0.0.0" || flags->listen.host == "::";
  if (any && flags->advertise.empty()) flags->advertise = HostName();
  Options& options = flags->options;
  RING_ASSIGN_OR_RETURN(options.lease, ParseDuration(raw.lease, "--worker-lease", kLease));
  RING_ASSIGN_OR_RETURN(
      flags->certificate_life,
      ParseDuration(raw.certificate_life, "--certificate-life", kCertificateLife));
  if (!raw.checkpoint_quota.empty()) {
    RING_ASSIGN_OR_RETURN(flags->checkpoint_quota,
                          ParseBytes(raw.checkpoint_quota, "--checkpoint-quota"));
  }
  flags->authority_overlap = 2 * flags->certificate_life;
  if (!raw.authority_overlap.empty()) {
    RING_ASSIGN_OR_RETURN(flags->authority_overlap,
                          ParseDuration(raw.authority_overlap, "--authority-overlap",
                                        {flags->authority_overlap, kLongestOverlap}));
  }
  RING_ASSIGN_OR_RETURN(options.silence, ParseDuration(raw.silence, "--silence", kSilence));
  // Heartbeats come several times in it, however short it is.
  options.heartbeat = std::min(options.heartbeat, options.silence / 4);
  if (!flags->socket_group.empty() && flags->socket.empty()) {
    return InvalidArgument("--socket-group {} is the group of --socket, which is missing",
                           flags->socket_group);
  }
  if (options.silence <= options.lease) return absl::OkStatus();
  return InvalidArgument(
      "--silence {} is longer than --worker-lease {}: the session would end first; raise both",
      raw.silence, raw.lease);
}

}  // namespace

ParsedFlags ParseFlags(int argc, char** argv) {
  ParsedFlags parsed;
  Flags& flags = parsed.flags;
  flags.connections.most = kDefaultConnections;
  RawFlags raw(flags.options);

  CLI::App app(
      "ringmaster: the coordinator. It queues training jobs, starts them on attached workers "
      "and keeps their checkpoints.");
  app.add_option("--listen", raw.listen, "HOST:PORT; port 0 picks a free one and prints it")
      ->capture_default_str();
  app.add_option("--advertise", flags.advertise,
                 "host that tokens name, where others reach this one; default: that of --listen");
  app.add_option("--data-dir", flags.data_dir, "folder of jobs and checkpoints, on a local disk")
      ->required();
  app.add_option("--data-root", flags.data_root,
                 "folder whose datasets workers without them may fetch; default: none");
  app.add_option("--socket", flags.socket,
                 "a Unix socket to listen at, beside DATA_DIR/ringmaster.sock");
  app.add_option("--socket-group", flags.socket_group,
                 "group whose members may use --socket; default: this user and root alone");
  app.add_option("--worker-lease", raw.lease, "silence after which a worker's session is ended")
      ->type_name("DURATION")
      ->capture_default_str();
  app.add_option("--silence", raw.silence,
                 "silence after which a job goes on without a worker; wider for a slow network")
      ->type_name("DURATION")
      ->capture_default_str();
  app.add_option("--certificate-life", raw.certificate_life,
                 "of the certificates that it signs, which renew themselves")
      ->type_name("DURATION")
      ->capture_default_str();
  app.add_option("--checkpoint-quota", raw.checkpoint_quota,
                 "of all checkpoints together; one for which there is no room waits with its "
                 "worker; default: the disk")
      ->type_name("BYTES");
  app.add_option("--authority-overlap", raw.authority_overlap,
                 "how long an authority is trusted beside a new one; default: twice "
                 "--certificate-life")
      ->type_name("DURATION");
  app.add_flag("--debuggable", flags.debuggable,
               "its user may attach a debugger and get core dumps, which have its keys");
  app.set_version_flag("--version", VersionLine("ringmaster"),
                       "print version, build and compute id, then end");

  app.add_option("--max-connections", flags.connections.most,
                 "connections at a time, at most half of the files that it may open (ulimit -n)")
      ->check(CLI::Range(1, kMaxConnections))
      ->capture_default_str();
  app.add_option("--max-connections-per-address", flags.connections.most_per_address,
                 "of them from one host; more where many workers are behind one address")
      ->check(CLI::Range(1, kMaxConnections))
      ->capture_default_str();

  // CLI11 throws; its exceptions end here.
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    parsed.exit = true;
    parsed.exit_code = app.exit(error) == 0 ? 0 : kUsageError;
    return parsed;
  }
  if (const Status status = Finish(raw, &flags); !status.ok()) {
    fmt::print(stderr, "ringmaster: {}\n", Message(status));
    parsed.exit = true;
    parsed.exit_code = kUsageError;
  }
  return parsed;
}

}  // namespace ringmaster::coordinator
