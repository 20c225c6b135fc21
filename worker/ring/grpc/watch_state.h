// What the two pulse streams of a watch and its thread share: the BeatMonitor, the predecessor's
// stream, and which streams still are. A monitor: thread-safe, calls nobody. Streams keep it alive.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/mutex.h"
#include "common/status.h"
#include "ringmaster/v1/ring.pb.h"
#include "worker/ring/beat_monitor.h"

namespace ringmaster::ring {

class IncomingPulse;

class WatchState {
 public:
  using TimePoint = BeatMonitor::TimePoint;

  WatchState(const std::string& successor, const std::string& predecessor,
             const WatchLimits& limits)
      : monitor_(successor, predecessor, limits, std::chrono::steady_clock::now()) {}

  // From the streams; after End they change no verdict.
  void Connected(Edge edge);
  void Heard(Edge edge, const v1::Beat& beat);
  void Left(Edge edge);
  void Broke(Edge edge, std::string how);

  // A stream begins, is over.
  void Begin(Edge edge);
  void Done(Edge edge);
  // Until no stream is left of those that began; false at the deadline.
  [[nodiscard]] bool WaitDone(TimePoint deadline);
  // The predecessor's accepted stream: since Accept, until its end.
  void SetIncoming(std::shared_ptr<IncomingPulse> stream);
  [[nodiscard]] std::shared_ptr<IncomingPulse> incoming() const;

  // The generation is over for this worker, or its port stops: nobody is accused any more.
  void End();
  // As of StreamTable's states.
  void Fail(const Status& /*reason*/) { End(); }

  struct Turn {
    bool ended = false;
    BeatMonitor::Verdict verdict;
  };
  // Waits until a beat is due, a stream broke, or End.
  [[nodiscard]] Turn Wait();

 private:
  struct Progress {
    bool begun = false;
    bool done = false;
  };
  [[nodiscard]] Progress& of(Edge edge) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return edge == Edge::kSuccessor ? successor_edge_ : predecessor_edge_;
  }

  mutable Mutex mu_;
  Condition changed_;
  BeatMonitor monitor_ ABSL_GUARDED_BY(mu_);
  bool broken_ ABSL_GUARDED_BY(mu_) = false;  // since the last Wait
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  Progress successor_edge_ ABSL_GUARDED_BY(mu_);
  Progress predecessor_edge_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<IncomingPulse> incoming_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ringmaster::ring
