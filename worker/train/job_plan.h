// What a job takes of a worker: memory part by part, what goes over the wire, and the largest batch
// that fits. Made by binding kernels and laying out memory without taking any, so that its word is
// that of the worker that prepares the job. Values; free functions for one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/graph/memory_plan.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"
#include "worker/backend/backend.h"
#include "worker/state/state.h"
#include "worker/train/shard_shapes.h"

namespace ringmaster::worker {

// Of the host, beside what the cores' programs take.
struct WorkerMemory {
  struct Part {
    std::string what;
    uint64_t bytes = 0;
  };
  std::vector<Part> always;    // in a run that nothing disturbs, while a checkpoint is delivered
  std::vector<Part> at_times;  // beside that: copies that wait, a state that comes from elsewhere
  uint64_t copy = 0;           // of the state, for one checkpoint; among the parts

  [[nodiscard]] uint64_t usual() const;
  [[nodiscard]] uint64_t most() const;  // all that may be there at once
  // parameters 1.5 GiB, optimizer slots ...; at times ...
  [[nodiscard]] std::string Text() const;
};

// What the memory of a worker depends on, beside its layout.
struct MemoryUse {
  uint64_t weights = 0;    // Weights::HostBytes
  uint64_t exchanged = 0;  // Core::host_bytes, of all cores
  uint32_t cores = 1;
  uint32_t workers = 1;         // of its ring
  bool own_memory = false;      // the cores' is not the host's
  size_t checkpoints = 2;       // TrainerOptions::checkpoint_copies
  uint64_t input = UINT64_MAX;  // InputOptions::memory_bytes
};
// `result` as its programs were built from it.
[[nodiscard]] WorkerMemory MemoryOf(const v1::ResultSpec& result, const ProgramSet& programs,
                                    const StateLayout& layout, const MemoryUse& use);

// A core's part of it.
[[nodiscard]] uint64_t HostShare(const WorkerMemory& host, uint64_t cores);

struct PlanOptions {
  uint32_t cores = 1;  // of one worker
  uint32_t threads_per_core = 1;
  uint32_t workers = 1;
  uint64_t memory_per_core = 0;  // the limit
  v1::MemoryOptions memory = {};
  // How many samples there are: else a set has one batch of them, whatever the batch.
  bool counts_known = true;
};

struct JobPlan {
  std::string device;                           // the class of core that it is for
  uint64_t batch = 0, shards = 0, samples = 0;  // samples: of the largest shard
  uint64_t cores = 0, memory_per_core = 0;      // memory: the limit
  uint64_t core_bytes = 0;                      // of the largest program; the limit aside
  uint64_t element_bytes = 0;  // of them, without what fills up tiles; 0: this memory has none
  bool own_memory = false;     // the limit is a device's: what the host holds is beside it
  WorkerMemory host;           // once on each worker
  uint64_t largest_batch = 0;  // the largest multiple of the shards that fits
  uint64_t workers = 0, wire_bytes = 0;  // at most, that each sends in a step
  graph::Peak peak;                      // of the largest program
  // What memory.rematerialize does, whether the job has it or not.
  struct Rematerialize {
    bool on = false;
    uint64_t needed_with = 0, needed_without = 0;  // as needed()
    double operations = 1;  // of the largest program with it, by those without it
  };
  Rematerialize rematerialize;
  std::optional<double> seconds_per_step;  // only where a profile knows; network apart
  std::vector<std::string> advice;

  // Of one core: its programs, and its part of what the host holds where that is the same memory.
  [[nodiscard]] uint64_t needed() const {
    return core_bytes + (own_memory ? 0 : HostShare(host, cores));
  }
  [[nodiscard]] bool fits() const { return needed() <= memory_per_core; }
  // RESOURCE_EXHAUSTED with the table where it does not fit.
  [[nodiscard]] Status Check() const;
  // What the worker grows by in a run that nothing disturbs.
  [[nodiscard]] uint64_t worker_bytes() const {
    return (own_memory ? 0 : cores * core_bytes) + host.usual();
  }
};

// The largest n from 0 to `most` with bytes(n) <= limit, where more samples never take less: in few
// calls where bytes grow in proportion. INVALID_ARGUMENT and RESOURCE_EXHAUSTED from `bytes` count
// as too large.
[[nodiscard]] StatusOr<uint64_t> LargestWithin(
    uint64_t limit, uint64_t most, const std::function<StatusOr<uint64_t>(uint64_t)>& bytes);

// `result` resolved. UNIMPLEMENTED where the device knows only once it has bound.
[[nodiscard]] StatusOr<JobPlan> PlanResult(const v1::ResultSpec& result, const PlanOptions& options,
                                           Backend* backend);

// Lines for people, the last one with its end: what a core and the host take, the largest batch,
// and the ten largest buffers at the peak.
[[nodiscard]] std::string TableOf(const JobPlan& plan);
inline constexpr size_t kShownBuffers = 10;

}  // namespace ringmaster::worker
