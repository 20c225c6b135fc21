// The plans of this process, for each of its GPUs, and how they are made: by cuDNN handles that
// belong to no core. Thread-safe.
#pragma once

#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/libraries/plan_cache.h"

namespace ringmaster::cuda {

// Makes a plan for the GPU on the calling thread, on which it makes that GPU current. What is made
// may be executed with any handle of the GPU.
[[nodiscard]] StatusOr<ChosenConvolution> MakePlan(const DeviceFacts& facts,
                                                   const PlanRequest& request);

// How many threads make plans side by side.
[[nodiscard]] size_t PlanningThreads();

// Lives as long as the process, as libraries of device vendors want it.
[[nodiscard]] PlanCache& PlansFor(const DeviceFacts& facts);

}  // namespace ringmaster::cuda
