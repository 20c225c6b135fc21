// What the two streams of a link and the ring thread share: received frames, unsent bytes, how far
// the connection is, and why it ended. A monitor: thread-safe, calls nobody. Streams and sent
// pieces keep it alive.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>

#include "common/mutex.h"
#include "common/status.h"
#include "worker/ring/beat_monitor.h"
#include "worker/ring/frame.h"
#include "worker/ring/link.h"

namespace ringmaster::ring {

using TimePoint = std::chrono::steady_clock::time_point;

class LinkState {
 public:
  // Names of the neighbours, for messages, and the largest payload that the predecessor may send.
  LinkState(std::string successor, std::string predecessor, size_t largest_payload)
      : successor_(std::move(successor)),
        predecessor_(std::move(predecessor)),
        largest_payload_(largest_payload) {}

  [[nodiscard]] const std::string& successor() const { return successor_; }
  [[nodiscard]] const std::string& predecessor() const { return predecessor_; }
  [[nodiscard]] size_t largest_payload() const { return largest_payload_; }

  // Ends every call, now and later; the first reason stays.
  void Fail(const Status& reason);
  [[nodiscard]] Status failure() const;

  // The edge's stream is up, is over.
  void Joined(Edge edge);
  void Done(Edge edge);
  // Waits for both edges. DEADLINE_EXCEEDED names who is missing.
  [[nodiscard]] Status WaitJoined(TimePoint deadline);
  // Until no stream is left of those that joined or were `begun`; false at the deadline.
  [[nodiscard]] bool WaitDone(TimePoint deadline);
  void Begin(Edge edge);

  // Waits until `bytes` more may be unsent.
  [[nodiscard]] Status Reserve(size_t bytes, TimePoint deadline);
  void Release(size_t bytes);
  // The successor needs nothing more: Reserve fails, Pop goes on.
  void SuccessorLeft();

  // Adds a received frame; false when the window is full then: read on after Pop says so.
  [[nodiscard]] bool Push(Frame frame);
  // The next frame; `*resume`: there is room again, and reading had stopped.
  [[nodiscard]] StatusOr<Frame> Pop(TimePoint deadline, bool* resume);
  // As of Link.
  [[nodiscard]] StatusOr<Arrival> Await(TimePoint deadline);
  void Nudge();
  // The predecessor sends nothing more: Pop and Await fail after the last frame.
  void PredecessorLeft();

 private:
  struct Progress {
    bool begun = false;
    bool joined = false;
    bool done = false;
  };
  // Why no frame will come, where none is there.
  [[nodiscard]] Status Exhausted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Progress& of(Edge edge) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return edge == Edge::kSuccessor ? successor_edge_ : predecessor_edge_;
  }

  const std::string successor_;
  const std::string predecessor_;
  const size_t largest_payload_;

  mutable Mutex mu_;
  Condition changed_;
  Status failure_ ABSL_GUARDED_BY(mu_);
  Progress successor_edge_ ABSL_GUARDED_BY(mu_);
  Progress predecessor_edge_ ABSL_GUARDED_BY(mu_);
  size_t unsent_ ABSL_GUARDED_BY(mu_) = 0;
  bool wants_room_ ABSL_GUARDED_BY(mu_) = false;  // somebody waits in Reserve
  bool successor_left_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Frame> frames_ ABSL_GUARDED_BY(mu_);
  bool reading_stopped_ ABSL_GUARDED_BY(mu_) = false;
  bool predecessor_left_ ABSL_GUARDED_BY(mu_) = false;
  bool nudged_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace ringmaster::ring
