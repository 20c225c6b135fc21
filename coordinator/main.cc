// ringmaster: flags -> Daemon. Signals are waited for here and nowhere else.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "common/failpoint.h"
#include "common/log.h"
#include "common/rpc/credentials.h"
#include "common/signals.h"
#include "coordinator/daemon.h"
#include "coordinator/flags.h"

int main(int argc, char** argv) {
  using namespace ringmaster;
  const coordinator::ParsedFlags parsed = coordinator::ParseFlags(argc, argv);
  if (parsed.exit) return parsed.exit_code;
  if (const Status tls = UseTls13(); !tls.ok()) {
    fmt::print(stderr, "ringmaster: {}\n", Message(tls));
    return 1;
  }
  BlockSignals();
  InitializeLog("ringmaster");
  if (const Status armed = ArmFailpoints(std::getenv(kFailpointVariable)); !armed.ok()) {
    fmt::print(stderr, "ringmaster: {}\n", Message(armed));
    return 2;
  }

  StatusOr<std::unique_ptr<coordinator::Daemon>> daemon = coordinator::Daemon::Create(parsed.flags);
  if (!daemon.ok()) {
    fmt::print(stderr, "ringmaster: {}\n", Message(daemon.status()));
    return 1;
  }
  fmt::print("ringmaster listening on {}\n", (*daemon)->address());
  std::fflush(stdout);

  while (!WaitForSignal(std::chrono::seconds(1))) (*daemon)->Tend();
  (*daemon)->Stop();
  return 0;
}
