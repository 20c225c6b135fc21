// `ringworker plan`: whether a job fits this host's cores, and what it takes, before anything
// starts. Needs no coordinator and no dataset; computes nothing. Main thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "common/status.h"
#include "ringmaster/v1/job.pb.h"
#include "worker/backend/backend.h"
#include "worker/flags.h"
#include "worker/profile.h"
#include "worker/speeds.h"
#include "worker/train/job_plan.h"

namespace ringmaster::worker {

struct PlanFlags {
  std::string job_file;  // - is stdin
  std::vector<std::string> overrides;
  DeviceChoice device;
  std::string data_root;  // empty: the dataset is not looked at
  uint32_t cores = 0;     // of one worker; 0: those of this host
  uint32_t threads_per_core = 1;
  uint32_t workers = 0;          // in the ring, for what goes over the wire; 0: the profile's
  uint64_t memory_per_core = 0;  // bytes; 0: what the device has
  std::string profile;           // file or name; in place of cores, threads, memory and workers
  std::string speeds;            // file: what jobs of a cluster measured (speeds.h); empty: none
  bool measure = false;
  bool json = false;
};

// Of a job file: what stands above it.
struct FilePlan {
  std::string title;
  std::string model_sha256, policy;
  JobPlan job;
};

// Of a class of workers, or why there is none.
struct ClassPlan {
  WorkerProfile profile;
  StatusOr<FilePlan> plan;
};

// `spec` valid; `flags` as parsed. UNIMPLEMENTED where the device knows only once it has bound.
[[nodiscard]] StatusOr<FilePlan> PlanJob(const v1::JobSpec& spec, const PlanFlags& flags,
                                         Backend* backend);

// For people; for programs, one JSON object: fits, largest_batch, bytes_per_core, host_bytes,
// peak, wire_bytes_per_step, seconds_per_step (null: nothing was measured), advice ...
void PrintPlan(const FilePlan& plan, std::ostream& out);
[[nodiscard]] std::string ToJson(const FilePlan& plan);

// A line for each class, and all of the plan for the one that has most room. For programs: fits,
// whether any class does, classes, each with its profile, plan and error, and speed: null where
// there is no cluster.
void PrintClasses(const std::vector<ClassPlan>& classes, std::ostream& out);
[[nodiscard]] std::string ToJson(const std::vector<ClassPlan>& classes,
                                 const std::optional<SpeedPlan>& speeds = std::nullopt);

// The whole command; `argv[0]` is the word `plan`. The exit code: 0 where the job fits, 1 where it
// does not or anything failed, 2 when the command line or the job file is wrong.
[[nodiscard]] int PlanMain(int argc, const char* const* argv);

}  // namespace ringmaster::worker
