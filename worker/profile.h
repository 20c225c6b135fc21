// What a plan is for where that is not this host: a class of worker, written down as JSON, with the
// times of jobs that were measured on it. Values; thread-safe (free functions).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "ringmaster/v1/job.pb.h"
#include "worker/backend/backend.h"
#include "worker/train/job_plan.h"

namespace ringmaster::worker {

// Steps of one job with as many shards as computed at once.
struct MeasuredSteps {
  std::string model_sha256;
  std::string policy;
  bool rematerialize = false;     // memory.rematerialize
  uint64_t samples = 0;           // of a shard
  double seconds_per_round = 0;   // each core computes one shard, from its input to its sums
  double seconds_per_update = 0;  // after the last shard
  bool operator==(const MeasuredSteps&) const = default;
};

struct WorkerProfile {
  std::string name;
  std::string device = "cpu";                 // backend, or tpu: planned, as it has none here
  std::string device_model, instruction_set;  // empty: not known
  uint32_t cores = 1;                         // of one worker
  uint32_t threads_per_core = 1;
  uint64_t memory_per_core = 0;  // bytes
  uint32_t workers = 1;          // that are of this class
  std::vector<MeasuredSteps> measured;
  bool operator==(const WorkerProfile&) const = default;
};

// A JSON object, or a list of them. INVALID_ARGUMENT names `source`, the key, and what it expected.
[[nodiscard]] StatusOr<std::vector<WorkerProfile>> ParseProfiles(const std::string& text,
                                                                 const std::string& source);
[[nodiscard]] std::string ToJson(const WorkerProfile& profile);

// A class of workers with TPUs that this program knows: tpu-v2-8 to tpu-v6e-8. Nothing: no such
// name.
[[nodiscard]] std::optional<WorkerProfile> ShippedProfile(const std::string& name);

// `named` where it has a / or ends in .json; else that name in the user's folder of profiles
// ($XDG_CONFIG_HOME, or ~/.config, /ringmaster/profiles).
[[nodiscard]] std::string ProfilePath(const std::string& named);

// Of a step of the planned job on workers of this profile, without what the network takes. Nothing
// where the model was not measured with this policy and rematerialize, or only with shards of less
// than a fourth or more than four times as many samples.
[[nodiscard]] std::optional<double> SecondsPerStep(const WorkerProfile& profile,
                                                   const JobPlan& plan,
                                                   const std::string& model_sha256,
                                                   const std::string& policy);

// Replaces what was measured of the same model, policy and rematerialize with shards of as many
// samples.
void Keep(const MeasuredSteps& steps, WorkerProfile* profile);

// Trains some steps of the job, one shard on each core, on the data under `data_root`, or on
// generated ones where that is empty, and takes the median. `spec` valid; the plan must fit.
struct MeasureOptions {
  uint32_t samples = 1, shards = 1;  // of a shard; of the job
  uint32_t cores = 1, threads_per_core = 1;
  uint64_t memory_per_core = 0;
  std::string data_root;
};
[[nodiscard]] StatusOr<MeasuredSteps> MeasureSteps(const v1::JobSpec& spec,
                                                   const MeasureOptions& options, Backend* backend);

}  // namespace ringmaster::worker
