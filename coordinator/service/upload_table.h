// The UploadCheckpoint calls under way by id: how the control loop answers them. Thread-safe. It
// knows neither workers nor jobs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
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
class UploadCall {
 public:
  virtual ~UploadCall() = default;
  // Its first message came, which shows whose it is.
  [[nodiscard]] virtual bool spoke() = 0;
  // Its pieces may come.
  virtual void Admit(uint64_t max_bytes) = 0;
  // Puts its files in their place; UploadPlaced follows. False: it cannot be tried now.
  [[nodiscard]] virtual bool Place() = 0;
  // Answers it; unless it succeeded its files go.
  virtual void End(const Refusal& refusal) = 0;
};

class UploadTable {
 public:
  static constexpr size_t kMost = 8'192;  // one a worker, and those that are about to end
  static constexpr std::chrono::seconds kSilence{10};  // of a call whose place another one wants

  // Nothing when there are too many. Who says nothing makes room for who might.
  [[nodiscard]] std::optional<UploadId> Add(const std::shared_ptr<UploadCall>& call) {
    EndSilent();
    MutexLock lock(mu_);
    if (calls_.size() >= kMost) return std::nullopt;
    const UploadId upload{next_++};
    calls_[upload] = {call, std::chrono::steady_clock::now()};
    return upload;
  }
  void Remove(UploadId upload) {
    MutexLock lock(mu_);
    calls_.erase(upload);
  }
  // Ends all.
  void Close(const Refusal& refusal) {
    for (const auto& call : Living([](const Entry&) { return true; })) call->End(refusal);
  }
  // Null when the call is over.
  [[nodiscard]] std::shared_ptr<UploadCall> Find(UploadId upload) const {
    MutexLock lock(mu_);
    const auto call = calls_.find(upload);
    return call == calls_.end() ? nullptr : call->second.call.lock();
  }

  // What a placed upload says when the control loop could not take it; asked for at each tick.
  void KeepUnheard(UploadPlaced placed) {
    MutexLock lock(mu_);
    unheard_.push_back(std::move(placed));
  }
  [[nodiscard]] std::vector<UploadPlaced> TakeUnheard() {
    MutexLock lock(mu_);
    return std::exchange(unheard_, {});
  }

 private:
  struct Entry {
    std::weak_ptr<UploadCall> call;
    std::chrono::steady_clock::time_point since;
  };

  template <typename Which>
  std::vector<std::shared_ptr<UploadCall>> Living(const Which& which) {
    std::vector<std::shared_ptr<UploadCall>> living;
    MutexLock lock(mu_);
    for (const auto& [upload, entry] : calls_) {
      if (auto call = entry.call.lock(); call != nullptr && which(entry)) {
        living.push_back(std::move(call));
      }
    }
    return living;
  }
  void EndSilent() {
    {
      MutexLock lock(mu_);
      if (calls_.size() < kMost) return;
    }
    const auto now = std::chrono::steady_clock::now();
    const auto old = [&](const Entry& entry) { return now - entry.since >= kSilence; };
    for (const auto& call : Living(old)) {
      if (call->spoke()) continue;
      call->End(
          {Error(absl::StatusCode::kDeadlineExceeded, "an upload begins with its first message"),
           "UNAVAILABLE"});
    }
  }

  mutable Mutex mu_;
  std::map<UploadId, Entry> calls_ ABSL_GUARDED_BY(mu_);
  std::vector<UploadPlaced> unheard_ ABSL_GUARDED_BY(mu_);
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
};

}  // namespace ringmaster::coordinator
