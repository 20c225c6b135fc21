// What gRPC finishes for the links of one port: one completion queue, whose connections nobody else
// in this process reads. A ring thread that waits for frames polls the queue itself, so that a
// frame is in its hands without another thread between; at all other times the queue's own thread
// does ("ring-events"). Thread-safe; owned by RingPort.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "common/mutex.h"

namespace ringmaster::ring {

// Has gRPC poll each queue's connections by themselves, on a thread that waits at that queue, and
// move channels on that nobody waits for. Before the first thing of gRPC's in a process; without it
// all is right, and slower. What the environment says of either stays.
void PollQueuesApart();

struct QueueLimits {
  // After which a borrower that does not poll has something else to do.
  std::chrono::milliseconds idle{100};
  std::chrono::milliseconds slice{1'000};  // of a wait of the own thread, which any event ends
};

class EventQueue {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // One thing that gRPC is asked for, again and again, but not twice at once. `happened` runs on
  // whichever thread polls; the owner outlives what was asked for.
  class Event {
   public:
    explicit Event(std::function<void(bool ok)> happened) : happened_(std::move(happened)) {}
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

   private:
    friend class EventQueue;
    const std::function<void(bool ok)> happened_;
  };

  explicit EventQueue(std::unique_ptr<grpc::ServerCompletionQueue> queue, QueueLimits limits = {});
  ~EventQueue() { Stop(); }

  [[nodiscard]] grpc::ServerCompletionQueue* grpc() { return queue_.get(); }

  // Waits for an event, and deals with it, on this thread; false: none until `deadline`, or never
  // again. One thread calls it at a time. It takes the queue from its own thread, and keeps it
  // until it gives it back, or does not poll for as long as `idle`; then it is true at once, as the
  // own thread may have dealt with something.
  bool Poll(TimePoint deadline);
  void GiveBack();
  // Ends a Poll that waits, or the next one.
  void Wake();
  // After the servers and calls that use it have ended: deals with what is left. Idempotent.
  void Stop();

 private:
  // Who may poll: the own thread; or a borrower, who does or does not just now.
  enum class Holder : uint8_t { kOwn, kBorrowed, kPolling };

  void Run();
  // Own thread: whether it may poll; else it has waited a little.
  bool Hold();
  // Borrower: waits until the own thread has left; false after Stop.
  bool Take();
  bool PollOnce(TimePoint deadline);

  const std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  const QueueLimits limits_;
  Event woken_;
  std::atomic<Holder> holder_{Holder::kOwn};
  std::atomic<TimePoint> polled_{TimePoint()};  // by the borrower, last
  std::atomic<bool> over_{false};               // the queue is empty, for good

  Mutex mu_;
  Condition changed_;
  bool wanted_ ABSL_GUARDED_BY(mu_) = false;  // somebody waits in Take
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  Mutex wake_mu_;
  bool waking_ ABSL_GUARDED_BY(wake_mu_) = false;  // the alarm is under way
  bool shut_ ABSL_GUARDED_BY(wake_mu_) = false;
  grpc::Alarm alarm_ ABSL_GUARDED_BY(wake_mu_);

  std::jthread thread_;  // "ring-events"; last: it uses everything above
};

}  // namespace ringmaster::ring
