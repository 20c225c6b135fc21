// What a stream asks of gRPC, in order and with no lock held: decided under the stream's own lock,
// carried out by whichever thread is here first. Thread-safe; owned by a stream, which lives as
// long as Run's `keep`.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "common/mutex.h"

namespace ringmaster::ring {

class CallQueue {
 public:
  using Call = std::function<void()>;

  // Calls nobody: locks may be held.
  void Add(Call call) {
    MutexLock lock(mu_);
    calls_.push_back(std::move(call));
  }
  // Carries out every call that was added, or leaves them to the thread that does so already. No
  // lock may be held. `keep` is the stream: the last call may be what it lived for.
  void Run(const std::shared_ptr<const void>& /*keep*/) {
    while (true) {
      Call call;
      {
        MutexLock lock(mu_);
        if (running_ || calls_.empty()) return;
        running_ = true;
        call = std::move(calls_.front());
        calls_.pop_front();
      }
      call();
      MutexLock lock(mu_);
      running_ = false;
    }
  }

 private:
  Mutex mu_;
  std::deque<Call> calls_ ABSL_GUARDED_BY(mu_);
  bool running_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace ringmaster::ring
