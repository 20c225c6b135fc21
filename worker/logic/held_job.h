// The job that a worker holds, as WorkerLogic sees it: where it stands, what ends its run, and what
// is to be said about it. A value; loop thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/ids.h"
#include "ringmaster/v1/fleet.pb.h"
#include "worker/logic/action.h"
#include "worker/logic/job_messages.h"
#include "worker/logic/reports.h"

namespace ringmaster::worker {

struct HeldJob {
  enum class Phase { kInspecting, kInspected, kPreparing, kPrepared, kRunning };
  // What is to be done when the step loop has returned, beside the fence.
  enum class AfterRun { kReport, kReportStopped, kDrop };

  JobId id;
  Phase phase = Phase::kInspecting;
  bool drop_when_idle = false;  // the job thread is still busy with it
  bool data_differs = false;    // as the coordinator said when it let the job go
  std::vector<std::string> known_shard_sha256;
  google::protobuf::RepeatedPtrField<v1::ClassMap> class_maps;  // of the newest Start, or Prepare

  GenerationId fenced;    // nothing older is applied any more, once it is acknowledged
  GenerationId started;   // that runs, or ran last
  HeldState state;        // the newest that is known, also while it runs
  bool check = false;     // it is looked at before `fenced` is acknowledged
  bool checking = false;  // the job thread does so
  std::string lost;       // not empty: why nothing is left of the state

  // Of the run that is on.
  std::optional<RunStop> stop;  // that it was told
  bool acknowledge = false;     // `fenced`, when it has ended
  AfterRun after_run = AfterRun::kReport;
  std::set<std::string> accused;  // peers that a Suspicion of this generation named
  std::optional<std::chrono::steady_clock::time_point> last_progress;
  std::optional<v1::Progress> newest;  // that it made
  bool held_back = false;              // `newest` was not sent
  StepDigests digests;                 // that the next report carries

  LastingMetrics lasting;  // of all its runs

  // Not said yet, and when some were said last.
  std::optional<v1::CheckpointsDropped> dropped;
  std::optional<std::chrono::steady_clock::time_point> dropped_told;

  bool delivering = false;  // a checkpoint that SaveState asked for
  // By step, the copies that are held, and the newest few that were: what their manifests are,
  // empty while that is unknown. They stay true when the copies go, and are told again in every new
  // session.
  std::map<uint64_t, std::string> snapshots;
  std::vector<uint64_t> copies;  // steps that are held
  KeptReports reports;           // of the current generation

  [[nodiscard]] bool running() const { return phase == Phase::kRunning; }
  // It goes as soon as the job thread is done with it.
  [[nodiscard]] bool dropping() const {
    return drop_when_idle || (running() && after_run == AfterRun::kDrop);
  }
  // It was part of a ring: it holds a state that others may need.
  [[nodiscard]] bool ever_started() const { return started != GenerationId(); }
};

}  // namespace ringmaster::worker
