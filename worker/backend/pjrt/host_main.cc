// ringmaster_pjrt_host: the process in which a PJRT plugin runs. Started by ringworker alone, with
// the control socket as file 3; it ends with that socket, and with its parent.
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "worker/backend/pjrt/host.h"
#include "worker/backend/pjrt/protocol.h"

int main(int argc, char** argv) {
  using namespace ringmaster::pjrt;
  constexpr int kExitUsage = 2;
  struct stat facts = {};
  if (argc != 2 || fstat(kControlFile, &facts) != 0 || !S_ISSOCK(facts.st_mode)) {
    std::fprintf(stderr, "%s is started by ringworker, which drives a PJRT plugin through it\n",
                 argv[0]);
    return kExitUsage;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (std::to_string(getppid()) != argv[1]) return 0;  // the parent ended before that
  return Host(ringmaster::OwnedFile(kControlFile)).Serve();
}
