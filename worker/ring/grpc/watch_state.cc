#include "worker/ring/grpc/watch_state.h"

#include <utility>

#include "worker/ring/grpc/pulse_streams.h"

namespace ringmaster::ring {

void WatchState::Connected(Edge edge) {
  MutexLock lock(mu_);
  monitor_.Connected(edge, std::chrono::steady_clock::now());
}

void WatchState::Heard(Edge edge, const v1::Beat& beat) {
  MutexLock lock(mu_);
  monitor_.Heard(edge, {.progress = beat.progress(), .phase = beat.phase()},
                 std::chrono::steady_clock::now());
}

void WatchState::Left(Edge edge) {
  MutexLock lock(mu_);
  monitor_.Left(edge);
}

void WatchState::Broke(Edge edge, std::string how) {
  MutexLock lock(mu_);
  monitor_.Broke(edge, std::move(how));
  broken_ = true;
  changed_.NotifyAll();
}

void WatchState::Begin(Edge edge) {
  MutexLock lock(mu_);
  of(edge).begun = true;
}

void WatchState::Done(Edge edge) {
  MutexLock lock(mu_);
  of(edge).done = true;
  changed_.NotifyAll();
}

bool WatchState::WaitDone(TimePoint deadline) {
  MutexLock lock(mu_);
  return changed_.WaitUntil(mu_, deadline, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return (!successor_edge_.begun || successor_edge_.done) &&
           (!predecessor_edge_.begun || predecessor_edge_.done);
  });
}

void WatchState::SetIncoming(std::shared_ptr<IncomingPulse> stream) {
  MutexLock lock(mu_);
  incoming_.swap(stream);  // the old one goes without the lock
}

std::shared_ptr<IncomingPulse> WatchState::incoming() const {
  MutexLock lock(mu_);
  return incoming_;
}

void WatchState::End() {
  MutexLock lock(mu_);
  ended_ = true;
  changed_.NotifyAll();
}

WatchState::Turn WatchState::Wait() {
  MutexLock lock(mu_);
  changed_.WaitUntil(mu_, monitor_.due(),
                     [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return ended_ || broken_; });
  if (ended_) return {.ended = true, .verdict = {}};
  broken_ = false;
  return {.ended = false, .verdict = monitor_.Tick(std::chrono::steady_clock::now())};
}

}  // namespace ringmaster::ring
