// Of the workers of a cluster, whom a job would be faster without: from what jobs that ran there
// took for their shards, where there are any, else from cores. Values; thread-safe (free
// functions).
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::worker {

// What `ringctl plan --cluster` asked the coordinator for.
struct ClusterSpeeds {
  struct Worker {
    std::string name, class_name;
    uint32_t cores = 1;
  };
  struct Took {
    std::string worker, class_name;
    double shard_seconds = 0;
  };
  struct Job {
    std::string id, model_sha256, policy;
    double samples = 1;  // of a shard
    std::vector<Took> workers;
  };
  std::vector<Worker> workers;  // that may get jobs, by name
  std::vector<Job> jobs;        // the newest first
};

// A JSON object {workers: [{name, class, cores}], jobs: [{job_id, model_sha256, policy, samples,
// workers: [{name, class, shard_seconds}]}]}. INVALID_ARGUMENT names `source`.
[[nodiscard]] StatusOr<ClusterSpeeds> ParseSpeeds(const std::string& text,
                                                  const std::string& source);

// Workers that would share the job.
struct SpeedGroup {
  std::vector<std::string> classes, workers;
  std::vector<std::string> unmeasured;  // of them; they count as the middle one of their class
  // Until the shards of a step are done; nothing where only proportions are known.
  std::optional<double> seconds, seconds_without;
  std::vector<std::string> leave_out;  // without them it is faster; none: with all
  double faster_percent = 0;
  bool needed = false;  // without them there would be fewer than workers.min
};

struct SpeedPlan {
  std::vector<std::string> jobs;  // that measured; none: shards go by cores
  bool same_model = false;        // and policy; else their proportions alone are taken over
  std::vector<SpeedGroup> groups;
};

// `samples` of a shard; `spec` valid. Without workers there are no groups.
[[nodiscard]] SpeedPlan PlanSpeeds(const ClusterSpeeds& cluster, const v1::JobSpec& spec,
                                   const std::string& model_sha256, const std::string& policy,
                                   double samples);

void PrintSpeeds(const SpeedPlan& plan, std::ostream& out);
[[nodiscard]] nlohmann::ordered_json JsonOf(const SpeedPlan& plan);

}  // namespace ringmaster::worker
