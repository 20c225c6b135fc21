// `ringworker plan`: whether a job fits this host's cores, and what it takes, before anything
// starts. Needs no coordinator and no dataset; computes nothing. Main thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "common/status.h"
#include "ringmaster/v1/job.pb.h"
#include "worker/backend/backend.h"
#include "worker/backend/core_layout.h"
#include "worker/flags.h"
#include "worker/train/state.h"

namespace ringmaster::worker {

struct PlanFlags {
  std::string job_file;  // - is stdin
  std::vector<std::string> overrides;
  DeviceChoice device;
  std::string data_root;  // empty: the dataset is not looked at
  uint32_t cores = 0;     // of one worker; 0: those of this host
  uint32_t threads_per_core = 1;
  uint32_t workers = 2;          // in the ring, for what goes over the wire
  uint64_t memory_per_core = 0;  // bytes; 0: what the device has
  bool json = false;
};

struct JobPlan {
  std::string title;
  std::string device;                           // the class of core that it is for
  uint64_t batch = 0, shards = 0, samples = 0;  // samples: of the largest shard
  uint64_t cores = 0, memory_per_core = 0;      // memory: the limit
  uint64_t core_bytes = 0;                      // of the largest program; the limit aside
  StateMemory host;                             // once on each worker
  uint64_t largest_batch = 0;                   // the largest multiple of the shards that fits
  uint64_t workers = 0, wire_bytes = 0;         // at most, that each sends in a step
  graph::Peak peak;                             // of the largest program
  std::vector<std::string> advice;

  // The verdict: cores have room for their programs, and together as much as the state takes.
  [[nodiscard]] bool core_fits() const { return core_bytes <= memory_per_core; }
  [[nodiscard]] bool host_fits() const { return host.total / cores <= memory_per_core; }
  [[nodiscard]] bool fits() const { return core_fits() && host_fits(); }
};

// The largest n from 0 to `most` with bytes(n) <= limit, where more samples never take less: in few
// calls where bytes grow in proportion. INVALID_ARGUMENT and RESOURCE_EXHAUSTED from `bytes` count
// as too large.
[[nodiscard]] StatusOr<uint64_t> LargestWithin(
    uint64_t limit, uint64_t most, const std::function<StatusOr<uint64_t>(uint64_t)>& bytes);

// `spec` valid; `flags` as parsed. UNIMPLEMENTED where the device knows only once it has bound.
[[nodiscard]] StatusOr<JobPlan> PlanJob(const v1::JobSpec& spec, const PlanFlags& flags,
                                        Backend* backend);

// For people; for programs, one JSON object: fits, largest_batch, bytes_per_core, host_bytes,
// peak, wire_bytes_per_step, seconds_per_step (null: nothing was measured), advice.
void PrintPlan(const JobPlan& plan, std::ostream& out);
[[nodiscard]] std::string ToJson(const JobPlan& plan);

// The whole command; `argv[0]` is the word `plan`. The exit code: 0 where the job fits, 1 where it
// does not or anything failed, 2 when the command line or the job file is wrong.
[[nodiscard]] int PlanMain(int argc, const char* const* argv);

}  // namespace ringmaster::worker
