// Counts what happens on other threads. Thread-safe.
#pragma once

#include <chrono>

#include "common/mutex.h"

namespace ringmaster::testing {

class Tally {
 public:
  void Add() {
    MutexLock lock(mu_);
    ++count_;
    changed_.NotifyAll();
  }
  // Whether it came to so many; waits at most 20 s.
  bool Await(int count) {
    MutexLock lock(mu_);
    return changed_.WaitUntil(mu_, std::chrono::steady_clock::now() + std::chrono::seconds(20),
                              [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return count_ >= count; });
  }
  int count() {
    MutexLock lock(mu_);
    return count_;
  }

 private:
  Mutex mu_;
  Condition changed_;
  int count_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace ringmaster::testing
