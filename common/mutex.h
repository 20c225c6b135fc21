// std::mutex with clang's thread-safety attributes, which ABSL_GUARDED_BY and clang-tidy check, and
// which TSan sees (Debian's absl::Mutex is invisible to it). Thread-safe.
#pragma once

#include <absl/base/thread_annotations.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace ringmaster {

class ABSL_LOCKABLE Mutex {
 public:
  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class Condition;
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// A condition variable over Mutex; every wait has a deadline.
class Condition {
 public:
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

  // Waits, with `mutex` held, until `done()` or `deadline`; returns done().
  template <typename Done>
  bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point deadline, Done done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool result = condition_.wait_until(lock, deadline, done);
    lock.release();
    return result;
  }

 private:
  std::condition_variable condition_;
};

// Returns, with `mutex` held, once `done()` holds: for what this process itself is bound to do.
// Whatever may never come - a neighbour, a file, a coordinator - has deadlines of its own where it
// is waited for; here a deadline only makes the wait look again.
template <typename Done>
void WaitFor(Condition& condition, Mutex& mutex, Done done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  constexpr std::chrono::minutes kSlice{1};
  bool is_done = false;
  while (!is_done) {
    is_done = condition.WaitUntil(mutex, std::chrono::steady_clock::now() + kSlice, done);
  }
}

}  // namespace ringmaster
