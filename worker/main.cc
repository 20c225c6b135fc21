// ringworker: flags -> Daemon. Signals are waited for here and nowhere else.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "common/failpoint.h"
#include "common/log.h"
#include "common/signals.h"
#include "worker/daemon.h"
#include "worker/flags.h"

int main(int argc, char** argv) {
  using namespace ringmaster;
  const worker::ParsedFlags parsed = worker::ParseFlags(argc, argv);
  if (parsed.exit) return parsed.exit_code;
  BlockSignals();
  InitializeLog("ringworker");
  if (const Status armed = ArmFailpoints(std::getenv(kFailpointVariable)); !armed.ok()) {
    fmt::print(stderr, "ringworker: {}\n", Message(armed));
    return 2;
  }

  StatusOr<std::unique_ptr<worker::Daemon>> daemon = worker::Daemon::Create(parsed.flags);
  if (!daemon.ok()) {
    fmt::print(stderr, "ringworker: {}\n", Message(daemon.status()));
    return 1;
  }
  (*daemon)->Start();
  fmt::print("ringworker {} listening on {}\n", parsed.flags.name, (*daemon)->ring_address());
  std::fflush(stdout);

  while (!(*daemon)->exited() && !WaitForSignal(std::chrono::seconds(1))) {
  }
  (*daemon)->Stop("the worker was told to stop");
  return 0;
}
