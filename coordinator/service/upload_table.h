// The UploadCheckpoint calls under way by id: how the control loop answers them. Thread-safe. It
// knows neither workers nor jobs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "common/mutex.h"
#include "coordinator/logic/action.h"
#include "coordinator/logic/event.h"

namespace ringmaster::coordinator {

// One call, as seen from outside gRPC. Thread-safe; nothing of it blocks.
class UploadCall {
 public:
  virtual ~UploadCall() = default;
  // Its pieces may come.
  virtual void Admit(uint64_t max_bytes) = 0;
  // Puts its files in their place; UploadPlaced follows. False: it cannot be tried now.
  [[nodiscard]] virtual bool Place() = 0;
  // Answers it; unless it succeeded its files go.
  virtual void End(const Refusal& refusal) = 0;
};

class UploadTable {
 public:
  [[nodiscard]] UploadId Add(const std::shared_ptr<UploadCall>& call) {
    MutexLock lock(mu_);
    const UploadId upload{next_++};
    calls_[upload] = call;
    return upload;
  }
  void Remove(UploadId upload) {
    MutexLock lock(mu_);
    calls_.erase(upload);
  }
  // Ends all.
  void Close(const Refusal& refusal) {
    std::map<UploadId, std::weak_ptr<UploadCall>> calls;
    {
      MutexLock lock(mu_);
      calls = calls_;
    }
    for (const auto& [upload, weak] : calls) {
      if (const auto call = weak.lock()) call->End(refusal);
    }
  }
  // Null when the call is over.
  [[nodiscard]] std::shared_ptr<UploadCall> Find(UploadId upload) const {
    MutexLock lock(mu_);
    const auto call = calls_.find(upload);
    return call == calls_.end() ? nullptr : call->second.lock();
  }

 private:
  mutable Mutex mu_;
  std::map<UploadId, std::weak_ptr<UploadCall>> calls_ ABSL_GUARDED_BY(mu_);
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
};

}  // namespace ringmaster::coordinator
