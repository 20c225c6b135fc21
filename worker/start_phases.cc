#include "worker/start_phases.h"

namespace ringmaster::worker {

void StartPhases::Enter(const JobId& job, const char* phase) {
  Pause();
  post_(PhaseChanged{job, phase, seconds_.count()});
  shown_.store(phase, std::memory_order_relaxed);
  seconds_ = {};
  running_ = true;
  begin_ = std::chrono::steady_clock::now();
}

void StartPhases::Pause() {
  if (running_) seconds_ += std::chrono::steady_clock::now() - begin_;
  running_ = false;
}

void StartPhases::Clear() {
  shown_.store("", std::memory_order_relaxed);
  running_ = false;
  seconds_ = {};
}

}  // namespace ringmaster::worker
