// What a run has to show that a message brought or a regroup cost: the newest figures, the history
// of metrics, and the changes of its ring, across restarts of the coordinator. Owned by Run, loop
// thread only. It decides what of all that members say is shown and what goes when a job goes back;
// nothing follows from it for the job.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/ids.h"
#include "coordinator/logic/event.h"
#include "coordinator/logic/history.h"
#include "coordinator/logic/options.h"
#include "ringmaster/v1/fleet.pb.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::coordinator {

class RunReport {
 public:
  // Goes on with the regroups, rewinds and faults that `before` has.
  RunReport(const Options& options, const v1::JobStatus& before);
  // After a restart: also with its figures, of S(committed).
  void Adopt(const v1::JobStatus& before, uint64_t committed);

  // ---- what members say -------------------------------------------------------------------------
  // Of the current generation. Figures are those of the member that is furthest.
  void OnProgress(const v1::Progress& said, uint64_t steps_per_epoch, Now now);
  // A last word of a job that is cancelled: it is history, and no figure.
  void OnLastProgress(const v1::Progress& said, uint64_t steps_per_epoch, Now now) {
    history_.Add(said, steps_per_epoch, now);
  }
  // The newest word of the member that is behind all others, which holds S(applied).
  void CountSkipped(const v1::Progress& said, uint64_t applied);
  [[nodiscard]] uint64_t newest_step() const { return newest_.applied(); }  // that anybody said

  // ---- changes of the ring ----------------------------------------------------------------------
  // A generation begins with S(step); `rewound_from`: that many steps were applied, else 0. Also
  // what a member that is gone said of a step that nobody else had reached goes.
  void GoOnFrom(uint64_t step, uint64_t rewound_from);
  void OnRegroup(const v1::Regroup& regroup);
  // Its ring is connected, first of all calls.
  [[nodiscard]] bool Forms(const GenerationId& generation) const;
  void OnFormed(const GenerationId& generation, std::chrono::milliseconds took);
  void OnRewind() { ++rewinds_; }
  void OnResumed(const v1::CheckpointRef& from) { resumed_from_ = from; }
  // Of how many workers of this job the state was wrong, with this one.
  [[nodiscard]] uint32_t CountStateFault() { return ++state_faults_; }
  // K of a stored generation, as far as it is known.
  [[nodiscard]] uint64_t StartOf(const GenerationId& generation) const;

  // ---- what is shown ----------------------------------------------------------------------------
  // Figures, and what became of the ring; `committed` steps are applied by every member.
  void Describe(uint64_t committed, v1::JobStatus& status) const;
  MetricHistory& history() { return history_; }

 private:
  const Options& options_;
  v1::Progress newest_;  // of the member that is furthest
  int64_t newest_unix_ms_ = 0;
  uint64_t skipped_ = 0;  // of the committed steps
  MetricHistory history_;
  std::vector<v1::Regroup> regroups_;  // the newest
  uint64_t regroup_count_ = 0, recomputed_ = 0, rewinds_ = 0;
  uint32_t state_faults_ = 0;  // that were named
  std::optional<v1::CheckpointRef> resumed_from_;
};

}  // namespace ringmaster::coordinator
