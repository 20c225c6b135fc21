// One job, from its submission to its end: its record, its place in the queue, its run while it is
// on workers, and what of all that is an event, is stored, and is shown when. Owned by Logic, loop
// thread only. It writes into the actions of the step in progress; workers, other jobs, uploads and
// what ends it are Logic's.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/logic/action.h"
#include "coordinator/logic/checkpoints.h"
#include "coordinator/logic/event.h"
#include "coordinator/logic/options.h"
#include "coordinator/logic/record.h"
#include "coordinator/logic/run/run.h"

namespace ringmaster::coordinator {

class Job {
 public:
  // What it reads and writes of Logic, which outlives it. `show_parent`: something of a fold was
  // shown that is shown of the job that it is of, too (AsFold).
  struct Desk {
    const Options& options;
    const Now& now;
    Actions& actions;
    // What would let a job go on that waits.
    std::function<std::vector<std::string>(const Run& waiting)> advise;
    std::function<void(const std::string& parent)> show_parent;
  };
  Job(const Desk& desk, JobRecord its) : record(std::move(its)), desk_(desk) {}

  JobRecord record;
  CheckpointList checkpoints;
  Retirement retirement;  // of those that were superseded
  // Steps of checkpoints that are nothing to go back to, until the store forgot them; those that it
  // could not forget yet.
  std::map<uint64_t, std::optional<CheckpointRecord>> distrusted;
  std::chrono::milliseconds forget_at{0};  // not before then
  std::unique_ptr<Run> run;                // while it is on workers
  SnapshotReports snapshots;               // of the run
  std::vector<std::string> folds;          // of one that is divided: their ids, in their order

  [[nodiscard]] const std::string& id() const { return record.id(); }
  [[nodiscard]] v1::JobState state() const { return record.status.state(); }
  // It runs nothing itself: each fold is a job of its own.
  [[nodiscard]] bool divided() const { return record.status.spec().validation().has_folds(); }

  // ---- its run ----------------------------------------------------------------------------------
  enum class From : uint8_t { kItsBegin, kRestart };
  void MakeRun(GenerationSource& generations, PhaseCounts& phase_counts, From from);
  // Its run goes on. First what it has learned, which the record has then.
  struct News {
    bool regrouped = false;
    bool first_step = false;  // was just applied everywhere
    bool slowed = false;      // by other workers, or by so many percent, than before
  };
  News LearnOfRun();
  // Then its state, which is new when true comes back; all of it is stored or shown.
  bool ShowRun(const News& news);
  // Something of the run is more than figures.
  [[nodiscard]] bool HasNews() const;
  // Why it cannot go on.
  void TellFailure(const Fault& fault);
  // What was held back of its run, which ends.
  void TellLast();
  // It ends, and another one may begin: nothing was computed.
  void DropRun();
  // That a ring was to begin, which did not.
  void ForgetPlannedRing();
  // Of the run's metrics those that are due; all of them.
  enum class Which : uint8_t { kDue, kAll };
  void KeepMetrics(Which which);

  // ---- the queue --------------------------------------------------------------------------------
  // Of a job that waits: what would make it start, or go on.
  // Whether it is another one than before.
  bool set_advice(std::vector<std::string> advice) {
    return std::exchange(advice_, std::move(advice)) != advice_;
  }
  void Wait(const std::string& reason);
  // A move in the queue is shown, but neither an event nor logged.
  void WaitBehind(const Job& head, size_t position);

  // ---- what everyone sees -----------------------------------------------------------------------
  // Changes the state; when it is new it is an event with its reason, and true comes back. Shown by
  // Publish, or by Save once it is durable.
  bool SetState(v1::JobState state, const std::string& reason);
  // An event, also in the log; durable with the next Save.
  void Tell(const Happening& happening);
  // With what its run has heard of metrics.
  void Save();
  void Publish();
  // Figures are shown now or soon, so that nobody is shown a job more often than can be seen.
  void ShowSoon();
  [[nodiscard]] bool IsDue() const;  // was not shown for a while
  [[nodiscard]] bool unshown() const { return unshown_; }
  void Hurry() { shown_at_.reset(); }   // it is due from now on
  void Postpone() { unshown_ = true; }  // there is something newer than what was shown
  // While a phase of starting lasts, those who watch see it.
  void ShowStart();
  // What the job that it is a fold of shows of it, beside the sums.
  [[nodiscard]] v1::Fold AsFold() const;
  // The newest checkpoint and the best one.
  void DescribeCheckpoints();

 private:
  void ShowState();
  void ShowPhase();
  bool ObserveSteps();
  void ShowParent();

  const Desk& desk_;
  std::string state_reason_;         // of its state, when no phase of starting is shown
  std::vector<std::string> advice_;  // of one that waits
  ProgressEvents progress_events_;   // of the run
  bool first_step_ = false;          // of the run: told
  GenerationId generation_;          // of the run: the newest that was learned of
  std::optional<std::chrono::milliseconds> shown_at_;
  bool unshown_ = false;
  std::string fold_shown_;  // what ShowParent told of
  int slowed_ = 0;          // percent, by all workers that slow it
};

// `j0001` of 1.
[[nodiscard]] std::string MakeJobId(uint64_t number);
[[nodiscard]] bool IsFinal(v1::JobState state);
// QUEUED of JOB_STATE_QUEUED.
[[nodiscard]] std::string StateName(v1::JobState state);

}  // namespace ringmaster::coordinator
