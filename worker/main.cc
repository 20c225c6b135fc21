// ringworker: flags -> Daemon, or `plan`, or `tune`, or `devices`, or `solo`. Signals are waited
// for here and nowhere else.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "common/amount.h"
#include "common/failpoint.h"
#include "common/log.h"
#include "common/rpc/credentials.h"
#include "common/signals.h"
#include "worker/daemon.h"
#include "worker/devices.h"
#include "worker/flags.h"
#include "worker/plan.h"
#include "worker/ring/grpc/event_queue.h"
#include "worker/solo.h"
#include "worker/tune.h"

namespace {

constexpr char kReason[] = "the worker was told to stop";

// Until the coordinator let it go, a second signal, or the limit.
void WaitUntilReleased(std::chrono::milliseconds limit, const std::string& reason,
                       ringmaster::worker::Daemon* daemon) {
  using Clock = std::chrono::steady_clock;
  if (limit.count() == 0 || daemon->exited()) return;
  daemon->Leave(reason);
  const auto deadline = Clock::now() + limit;
  while (!daemon->exited()) {
    if (ringmaster::WaitForSignal(std::chrono::milliseconds(20))) return;
    if (Clock::now() > deadline) {
      spdlog::warn("not released within {} (--drain): it ends now",
                   ringmaster::ExactDuration(limit));
      return;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace ringmaster;
  if (const Status tls = UseTls13(); !tls.ok()) {
    fmt::print(stderr, "ringworker: {}\n", Message(tls));
    return 1;
  }
  if (argc > 1 && std::strcmp(argv[1], "tune") == 0) {
    InitializeLog("ringworker");
    return worker::TuneMain(argc - 1, argv + 1);
  }
  if (argc > 1 && std::strcmp(argv[1], "plan") == 0) {
    InitializeLog("ringworker");
    return worker::PlanMain(argc - 1, argv + 1);
  }
  if (argc > 1 && std::strcmp(argv[1], "solo") == 0) {
    InitializeLog("ringworker");
    return worker::SoloMain(argc - 1, argv + 1);
  }
  if (argc > 1 && std::strcmp(argv[1], "devices") == 0) {
    InitializeLog("ringworker");
    return worker::DevicesMain(argc - 1, argv + 1);
  }
  worker::ParsedFlags parsed = worker::ParseFlags(argc, argv);
  if (parsed.exit) return parsed.exit_code;
  BlockSignals();
  ring::PollQueuesApart();
  InitializeLog("ringworker");
  if (const Status armed = ArmFailpoints(std::getenv(kFailpointVariable)); !armed.ok()) {
    fmt::print(stderr, "ringworker: {}\n", Message(armed));
    return 2;
  }

  const auto drain = parsed.flags.drain;
  StatusOr<std::unique_ptr<worker::Daemon>> daemon =
      worker::Daemon::Create(std::move(parsed.flags));
  if (!daemon.ok()) {
    fmt::print(stderr, "ringworker: {}\n", Message(daemon.status()));
    return 1;
  }
  (*daemon)->Start();
  fmt::print("ringworker {} listening on {}\n", (*daemon)->name(), (*daemon)->ring_address());
  std::fflush(stdout);

  while (!(*daemon)->exited() && (*daemon)->notice().empty() &&
         !WaitForSignal(std::chrono::seconds(1))) {
  }
  const std::string notice = (*daemon)->notice(), reason = notice.empty() ? kReason : notice;
  WaitUntilReleased(drain, reason, daemon->get());
  (*daemon)->Stop(reason);
  return (*daemon)->exit_code();
}
