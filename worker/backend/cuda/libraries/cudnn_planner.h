// The plans of this process, for each of its GPUs, and how they are made: by cuDNN handles that
// belong to no core. Thread-safe.
#pragma once

#include <cstddef>
#include <string>

#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/libraries/plan_cache.h"

namespace ringmaster::cuda {

// Makes a plan for the GPU on the calling thread, on which it makes that GPU current. What is made
// may be executed with any handle of the GPU.
[[nodiscard]] StatusOr<ChosenConvolution> MakePlan(const DeviceFacts& facts,
                                                   const PlanRequest& request);

// From now on PlansFor's plans are kept in this file, for processes with the same `identity` (one
// line), and those that it has are not looked for again. Before the first plan.
void KeepPlansIn(const std::string& path, const std::string& identity);
// Writes what is new into that file, where there is one; a failure is a line in the log.
void KeepNewPlans();

// How many threads make plans side by side.
[[nodiscard]] size_t PlanningThreads();

// Lives as long as the process, as libraries of device vendors want it.
[[nodiscard]] PlanCache& PlansFor(const DeviceFacts& facts);

}  // namespace ringmaster::cuda
