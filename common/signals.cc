#include "common/signals.h"

#include <csignal>
#include <ctime>

namespace ringmaster {
namespace {

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

void BlockSignals() {
  sigset_t set = StopSignals();
  sigaddset(&set, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

std::optional<int> WaitForSignal(std::chrono::milliseconds timeout) {
  const sigset_t set = StopSignals();
  const timespec wait = {timeout.count() / 1000, (timeout.count() % 1000) * 1'000'000};
  const int signal = sigtimedwait(&set, nullptr, &wait);
  if (signal < 0) return std::nullopt;
  return signal;
}

}  // namespace ringmaster
