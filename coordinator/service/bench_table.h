// The Bench calls under way by id: how the control loop answers them. Thread-safe. It knows no
// workers.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "coordinator/logic/action.h"
#include "coordinator/logic/event.h"

namespace ringmaster::coordinator {

// One call, as seen from outside gRPC. Thread-safe; nothing of it blocks.
class BenchCallback {
 public:
  virtual ~BenchCallback() = default;
  // Answers it; the first answer counts.
  virtual void End(const Refusal& refusal, const v1::AllReduceReport& report) = 0;
};

class BenchTable {
 public:
  static constexpr size_t kMost = 64;  // one is measured, the others are about to be refused

  // Nothing when there are too many.
  [[nodiscard]] std::optional<BenchId> Add(std::weak_ptr<BenchCallback> call) {
    MutexLock lock(mu_);
    if (calls_.size() >= kMost) return std::nullopt;
    const BenchId bench{next_++};
    calls_[bench] = std::move(call);
    return bench;
  }
  void Remove(BenchId bench) {
    MutexLock lock(mu_);
    calls_.erase(bench);
  }
  // Null when the call is over.
  [[nodiscard]] std::shared_ptr<BenchCallback> Find(BenchId bench) const {
    MutexLock lock(mu_);
    const auto call = calls_.find(bench);
    return call == calls_.end() ? nullptr : call->second.lock();
  }
  // Ends all.
  void Close(const Refusal& refusal) {
    std::vector<std::shared_ptr<BenchCallback>> living;
    {
      MutexLock lock(mu_);
      for (const auto& [bench, call] : calls_) {
        if (auto each = call.lock(); each != nullptr) living.push_back(std::move(each));
      }
    }
    for (const auto& call : living) call->End(refusal, {});
  }

 private:
  mutable Mutex mu_;
  std::map<BenchId, std::weak_ptr<BenchCallback>> calls_ ABSL_GUARDED_BY(mu_);
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
};

}  // namespace ringmaster::coordinator
