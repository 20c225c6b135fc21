#include "worker/backend/cuda/libraries/plan_cache.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "worker/backend/core_thread.h"

namespace ringmaster::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// Tells how far many threads have come, and not too often.
class Counter {
 public:
  Counter(size_t of, std::function<void(size_t, size_t)> tell) : of_(of), tell_(std::move(tell)) {}

  void Add() {
    const MutexLock lock(mu_);
    ++made_;
    const bool due = Clock::now() - told_ >= std::chrono::seconds(2);
    if (!tell_ || (!due && made_ < of_)) return;
    told_ = Clock::now();
    tell_(made_, of_);
  }

 private:
  const size_t of_;
  const std::function<void(size_t, size_t)> tell_;
  Mutex mu_;
  size_t made_ ABSL_GUARDED_BY(mu_) = 0;
  Clock::time_point told_ ABSL_GUARDED_BY(mu_) = Clock::now();
};

}  // namespace

PlanCache::Missing PlanCache::MissingOf(std::span<const PlanRequest> requests) {
  Missing missing;
  const MutexLock lock(mu_);
  for (const PlanRequest& request : requests) {
    std::string key = cuda::Key(request);
    if (!plans_.contains(key)) missing.emplace(std::move(key), &request);
  }
  return missing;
}

void PlanCache::Put(const std::string& key, StatusOr<ChosenConvolution> made) {
  if (absl::IsResourceExhausted(made.status())) return;
  const auto plan = [&]() -> StatusOr<Plan> {
    RING_ASSIGN_OR_RETURN(ChosenConvolution chosen, std::move(made));
    return std::make_shared<const ChosenConvolution>(std::move(chosen));
  }();
  const MutexLock lock(mu_);
  plans_.emplace(key, plan);
}

void PlanCache::Prepare(std::span<const PlanRequest> requests) {
  const MutexLock making(making_);
  const Missing missing = MissingOf(requests);
  if (missing.empty()) return;
  const std::vector<std::pair<std::string, const PlanRequest*>> work(missing.begin(),
                                                                     missing.end());
  Counter counter(work.size(), options_.progress);
  std::atomic<size_t> next = 0;
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < std::min(options_.threads, work.size()); ++i) {
    threads.emplace_back([&, i] {
      (void)pthread_setname_np(pthread_self(), fmt::format("plan{}", i).c_str());
      UnpinThread();
      for (size_t k = next++; k < work.size(); k = next++) {
        Put(work[k].first, options_.make(*work[k].second));
        counter.Add();
      }
    });
  }
}

StatusOr<PlanCache::Plan> PlanCache::Get(const PlanRequest& request) {
  const std::string key = cuda::Key(request);
  const auto find = [&]() -> const StatusOr<Plan>* {
    const MutexLock lock(mu_);
    const auto found = plans_.find(key);
    return found == plans_.end() ? nullptr : &found->second;  // nothing is ever taken out
  };
  if (const auto* found = find()) return *found;
  const MutexLock making(making_);
  if (const auto* found = find()) return *found;
  StatusOr<ChosenConvolution> made = options_.make(request);
  const Status status = made.status();
  Put(key, std::move(made));
  const auto* const found = find();
  return found != nullptr ? *found : status;
}

}  // namespace ringmaster::cuda
