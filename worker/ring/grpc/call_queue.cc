#include "worker/ring/grpc/call_queue.h"

#include <utility>

namespace ringmaster::ring {

void CallQueue::Add(Call call) {
  MutexLock lock(mu_);
  calls_.push_back(std::move(call));
}

void CallQueue::Run(const std::shared_ptr<const void>& /*keep*/) {
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

}  // namespace ringmaster::ring
