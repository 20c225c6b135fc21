#include "worker/ring/grpc/event_queue.h"

#include <grpc/support/time.h>
#include <pthread.h>

#include <algorithm>
#include <cstdlib>

#include "common/check.h"
#include "worker/ring/link.h"

namespace ringmaster::ring {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kStopping{1};  // `idle`, after Stop

gpr_timespec TimespecOf(EventQueue::TimePoint deadline) {
  if (deadline == kNoWait) return gpr_inf_past(GPR_CLOCK_MONOTONIC);
  const auto left =
      std::min<steady_clock::duration>(deadline - steady_clock::now(), std::chrono::hours(1));
  const auto nanos = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(nanos, GPR_TIMESPAN));
}

}  // namespace

// With `poll`, only who waits for a channel or a call of it moves its connection on. Where nobody
// does, after a call that failed, a timer of gRPC's looks for all of them, every 5 s by itself: an
// attempt to connect is given up before that, and so is each one behind it.
void PollQueuesApart() {
  (void)setenv("GRPC_POLL_STRATEGY", "poll", /*overwrite=*/0);
  (void)setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "50", /*overwrite=*/0);
}

EventQueue::EventQueue(std::unique_ptr<grpc::ServerCompletionQueue> queue, QueueLimits limits)
    : queue_(std::move(queue)),
      limits_(limits),
      woken_([this](bool /*ok*/) {
        MutexLock lock(wake_mu_);
        waking_ = false;
      }),
      thread_([this]() { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "ring-events");
}

bool EventQueue::Poll(TimePoint deadline) {
  Holder borrowed = Holder::kBorrowed;
  const bool has = holder_.compare_exchange_strong(borrowed, Holder::kPolling);
  // The own thread may have dealt with what the caller would wait for, a Wake among it: who has
  // just taken the queue looks first.
  const bool happened = has ? PollOnce(deadline) : Take();
  if (!has && !happened) return false;
  polled_.store(steady_clock::now(), std::memory_order_relaxed);
  holder_.store(Holder::kBorrowed);
  return happened;
}

bool EventQueue::Take() {
  {
    MutexLock lock(mu_);
    RING_CHECK(holder_ != Holder::kPolling && !wanted_, "two threads poll for a link at once");
    if (stopping_) return false;
    wanted_ = true;
    changed_.NotifyAll();
  }
  Wake();
  MutexLock lock(mu_);
  WaitFor(changed_, mu_, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !wanted_ || over_; });
  return !std::exchange(wanted_, false);
}

void EventQueue::GiveBack() {
  Holder borrowed = Holder::kBorrowed;
  if (!holder_.compare_exchange_strong(borrowed, Holder::kOwn)) return;
  MutexLock lock(mu_);
  changed_.NotifyAll();
}

void EventQueue::Wake() {
  MutexLock lock(wake_mu_);
  if (shut_ || std::exchange(waking_, true)) return;
  // Long past: `now` is rounded up to a millisecond, and left to gRPC's timer thread.
  alarm_.Set(queue_.get(), gpr_inf_past(GPR_CLOCK_MONOTONIC), &woken_);
}

bool EventQueue::Hold() {
  MutexLock lock(mu_);
  if (wanted_ && holder_ == Holder::kOwn) {
    polled_.store(steady_clock::now(), std::memory_order_relaxed);
    holder_ = Holder::kPolling;
    wanted_ = false;
    changed_.NotifyAll();
  }
  if (holder_ == Holder::kOwn) return true;
  const bool stopping = stopping_;
  const auto idle = stopping ? kStopping : limits_.idle;
  changed_.WaitUntil(mu_, steady_clock::now() + idle,
                     [this, stopping]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
                       return holder_ == Holder::kOwn || stopping_ != stopping;
                     });
  Holder borrowed = Holder::kBorrowed;
  if (steady_clock::now() - polled_.load(std::memory_order_relaxed) < idle) return false;
  holder_.compare_exchange_strong(borrowed, Holder::kOwn);
  return holder_ == Holder::kOwn;
}

void EventQueue::Run() {
  while (!over_) {
    if (Hold()) PollOnce(steady_clock::now() + limits_.slice);
  }
  MutexLock lock(mu_);
  changed_.NotifyAll();
}

bool EventQueue::PollOnce(TimePoint deadline) {
  void* tag = nullptr;
  bool ok = false;
  switch (queue_->AsyncNext(&tag, &ok, TimespecOf(deadline))) {
    case grpc::CompletionQueue::GOT_EVENT:
      static_cast<const Event*>(tag)->happened_(ok);
      return true;
    case grpc::CompletionQueue::SHUTDOWN:
      over_ = true;
      return false;
    case grpc::CompletionQueue::TIMEOUT:
      break;
  }
  return false;
}

void EventQueue::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  {
    MutexLock lock(wake_mu_);
    shut_ = true;
  }
  queue_->Shutdown();
  thread_.join();
}

}  // namespace ringmaster::ring
