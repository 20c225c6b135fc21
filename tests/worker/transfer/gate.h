// Something that happens once, and that other threads wait for. Thread-safe.
#pragma once

#include <chrono>

#include "common/mutex.h"

namespace ringmaster::worker {

class Gate {
 public:
  void Open() {
    MutexLock lock(mu_);
    open_ = true;
    changed_.NotifyAll();
  }
  // False when it did not happen within 30 s.
  bool Await() {
    MutexLock lock(mu_);
    return changed_.WaitUntil(mu_, std::chrono::steady_clock::now() + std::chrono::seconds(30),
                              [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return open_; });
  }

 private:
  Mutex mu_;
  Condition changed_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace ringmaster::worker
