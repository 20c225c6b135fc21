#include "worker/backend/cuda/libraries/cudnn_planner.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "worker/backend/cuda/device/runtime.h"

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

}  // namespace

StatusOr<ChosenConvolution> MakePlan(const DeviceFacts& facts, const PlanRequest& request) {
  RING_RETURN_IF_ERROR(FromCuda(cudaSetDevice(facts.index), "GPU for plans"));
  Handles& handles = HandlesFor(facts.index);
  RING_ASSIGN_OR_RETURN(const cudnnHandle_t handle, handles.Take());
  auto chosen = ChooseConvolution({.handle = handle}, facts.name, request);
  handles.Return(handle);
  return chosen;
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
        .make = [facts](const PlanRequest& request) { return MakePlan(facts, request); },
        .threads = PlanningThreads(),
        .progress = [](size_t made,
                       size_t of) { spdlog::info("plans: {} of {} convolutions", made, of); },
    });
  }
  return *cache;
}

}  // namespace ringmaster::cuda
