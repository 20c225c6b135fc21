// A first-in first-out queue with a limit and an end. Thread-safe. Close() wakes every waiter: Pop
// then drains what is left and returns nullopt, Push refuses.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <utility>

#include "common/mutex.h"

namespace ringmaster {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t limit) : limit_(limit) {}

  // Waits for room until `deadline`; false when it is full at the deadline, or closed.
  [[nodiscard]] bool Push(T item, std::chrono::steady_clock::time_point deadline) {
    MutexLock lock(mu_);
    changed_.WaitUntil(mu_, deadline, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return closed_ || items_.size() < limit_;
    });
    if (closed_ || items_.size() >= limit_) return false;
    items_.push_back(std::move(item));
    changed_.NotifyAll();
    return true;
  }

  // False at once when it is full or closed.
  [[nodiscard]] bool TryPush(T item) {
    MutexLock lock(mu_);
    if (closed_ || items_.size() >= limit_) return false;
    items_.push_back(std::move(item));
    changed_.NotifyAll();
    return true;
  }

  // Waits for an item until `deadline`; nullopt at the deadline, or when closed and drained.
  [[nodiscard]] std::optional<T> Pop(std::chrono::steady_clock::time_point deadline) {
    MutexLock lock(mu_);
    changed_.WaitUntil(mu_, deadline, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return closed_ || !items_.empty();
    });
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    changed_.NotifyAll();
    return item;
  }

  void Close() {
    MutexLock lock(mu_);
    closed_ = true;
    changed_.NotifyAll();
  }

  bool closed() const {
    MutexLock lock(mu_);
    return closed_;
  }

 private:
  const size_t limit_;
  mutable Mutex mu_;
  Condition changed_;
  std::deque<T> items_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace ringmaster
