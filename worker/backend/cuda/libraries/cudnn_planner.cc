#include "worker/backend/cuda/libraries/plan_cache.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/libraries/plan_store.h"

namespace ringmaster::cuda {
namespace {

constexpr size_t kMostPlanningThreads = 16;

// Handles of one GPU, each used by one thread at a time. They stay: a plan may remember its own.
class Handles {
 public:
  StatusOr<cudnnHandle_t> Take() {
    {
      const MutexLock lock(mu_);
      if (!idle_.empty()) {
        const cudnnHandle_t handle = idle_.back();
        idle_.pop_back();
        return handle;
      }
    }
    cudnnHandle_t handle = nullptr;
    RING_RETURN_IF_ERROR(FromCudnn(cudnnCreate(&handle), "handle for plans"));
    return handle;
  }
  void Return(cudnnHandle_t handle) {
    const MutexLock lock(mu_);
    idle_.push_back(handle);
  }

 private:
  Mutex mu_;
  std::vector<cudnnHandle_t> idle_ ABSL_GUARDED_BY(mu_);
};

// Of each GPU by its index; what is in it is never destroyed.
template <typename T>
struct EachGpu {
  Mutex mu;
  std::map<int, T> of ABSL_GUARDED_BY(mu);
};

Handles& HandlesFor(int gpu) {
  static auto* const handles = new EachGpu<Handles>;
  const MutexLock lock(handles->mu);
  return handles->of[gpu];
}

// With a handle of the GPU, which becomes current.
StatusOr<ChosenConvolution> WithHandle(
    const DeviceFacts& facts,
    const std::function<StatusOr<ChosenConvolution>(const CudnnTarget&)>& make) {
  RING_RETURN_IF_ERROR(FromCuda(cudaSetDevice(facts.index), "GPU for plans"));
  Handles& handles = HandlesFor(facts.index);
  RING_ASSIGN_OR_RETURN(const cudnnHandle_t handle, handles.Take());
  auto chosen = make({.handle = handle});
  handles.Return(handle);
  return chosen;
}

// Of this process; set before there are threads that read it.
std::unique_ptr<PlanStore>& Kept() {
  static auto* const store = new std::unique_ptr<PlanStore>;
  return *store;
}

StatusOr<ChosenConvolution> RestoreOrMake(const DeviceFacts& facts, const PlanRequest& request) {
  PlanStore* const kept = Kept().get();
  if (kept == nullptr) return MakePlan(facts, request);
  const std::string key = Key(request);
  if (const auto found = kept->Find(key)) {
    auto restored = WithHandle(facts, [&](const CudnnTarget& target) {
      return RestoreConvolution(target, request, found->choice, found->written);
    });
    if (restored.ok()) return restored;
    spdlog::warn("a plan that was kept is made anew: {}", Message(restored.status()));
  }
  auto chosen = MakePlan(facts, request);
  if (!chosen.ok()) return chosen;
  auto written = chosen->plan.Written();
  if (written.ok()) kept->Put(key, {chosen->choice, *std::move(written)});
  return chosen;
}

}  // namespace

StatusOr<ChosenConvolution> MakePlan(const DeviceFacts& facts, const PlanRequest& request) {
  return WithHandle(facts, [&](const CudnnTarget& target) {
    return ChooseConvolution(target, facts.name, request);
  });
}

void KeepPlansIn(const std::string& path, const std::string& identity) {
  Kept() = PlanStore::Open(path, identity);
}

void KeepNewPlans() {
  if (Kept() == nullptr) return;
  const Status saved = Kept()->Save();
  if (!saved.ok()) spdlog::warn("plans are not kept: {}", Message(saved));
}

size_t PlanningThreads() {
  return std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMostPlanningThreads);
}

PlanCache& PlansFor(const DeviceFacts& facts) {
  static auto* const caches = new EachGpu<std::unique_ptr<PlanCache>>;
  const MutexLock lock(caches->mu);
  std::unique_ptr<PlanCache>& cache = caches->of[facts.index];
  if (cache == nullptr) {
    cache = std::make_unique<PlanCache>(PlanCache::Options{
        .make = [facts](const PlanRequest& request) { return RestoreOrMake(facts, request); },
        .threads = PlanningThreads(),
        .progress = [](size_t made,
                       size_t of) { spdlog::info("plans: {} of {} convolutions", made, of); },
    });
  }
  return *cache;
}

}  // namespace ringmaster::cuda
