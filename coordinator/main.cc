// ringmaster: flags -> Daemon. Signals are waited for here and nowhere else.
#include <fmt/format.h>
#include <malloc.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/failpoint.h"
#include "common/files.h"
#include "common/log.h"
#include "common/rpc/credentials.h"
#include "common/signals.h"
#include "coordinator/daemon.h"
#include "coordinator/flags.h"

namespace {

// Tells the service manager that it listens, where there is one (sd_notify(3)): then what is
// started behind it finds it.
void SayReady() {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address = {};
  if (path == nullptr || std::strlen(path) >= sizeof(address.sun_path)) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path, std::strlen(path));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // an abstract one
  const ringmaster::OwnedFile file(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  constexpr char kReady[] = "READY=1";
  (void)sendto(file.get(), kReady, std::strlen(kReady), MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&address), size);
}

// gRPC's threads free what others allocated. With an arena for each of them, most of each stays
// empty and in memory: twice of what is used, behind some minutes of connections that come and go.
void ShareArenas() { mallopt(M_ARENA_MAX, 2); }

}  // namespace

int main(int argc, char** argv) {
  using namespace ringmaster;
  const coordinator::ParsedFlags parsed = coordinator::ParseFlags(argc, argv);
  if (parsed.exit) return parsed.exit_code;
  if (const Status tls = UseTls13(); !tls.ok()) {
    fmt::print(stderr, "ringmaster: {}\n", Message(tls));
    return 1;
  }
  BlockSignals();
  ShareArenas();
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
  SayReady();

  while (!WaitForSignal(std::chrono::seconds(1))) (*daemon)->Tend();
  (*daemon)->Stop();
  return 0;
}
