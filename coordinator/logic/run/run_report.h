// What a run has to show that a message brought or a regroup cost: the newest figures, the history
// of metrics, and the changes of its ring, across restarts of the coordinator; and how its start
// goes on. Values, owned by Run, loop thread only. They decide what of all that members say is
// shown and what goes when a job goes back; nothing follows from them for the job.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/ids.h"
#include "coordinator/logic/event.h"
#include "coordinator/logic/history.h"
#include "coordinator/logic/options.h"
#include "ringmaster/v1/fleet.pb.h"
#include "ringmaster/v1/job.pb.h"
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
  bool adopted_ = false;  // from an earlier reign, and no generation has begun since
};

// How the start of a job goes on: which phase each of its workers is in, and how long each phase
// took. The phases are those of PhaseEntered, in that order; everything else a worker may call one
// is ignored. A phase ends on a worker when its next begins, or when the worker said what the
// coordinator waits for.
class StartPhases {
 public:
  // `workers` in ring order; what is said of others is ignored.
  explicit StartPhases(const std::vector<std::string>& workers);

  // It is lost, or leaves: nobody waits for it.
  void Remove(const std::string& worker);

  // A phase began, or `done`: the first step was applied. The one before took `seconds`. A phase
  // that is not after the worker's newest is old and ignored.
  void Enter(const std::string& worker, const std::string& phase, double seconds, Now now);
  // The worker waits for the others.
  void Pause(const std::string& worker, Now now);
  // It applied its first step.
  void Finish(const std::string& worker, Now now);

  bool under_way() const;  // some worker is in a phase
  bool over() const;       // every worker applied its first step
  // Nothing more is to come: it is over, or there was no start.
  bool settled() const { return done_ == tracks_.size(); }
  // The phase that `worker` is in; empty when it is in none.
  [[nodiscard]] std::string PhaseOf(const std::string& worker) const;
  // The first phase that has not ended everywhere and the workers in it: `bind on w2, w3`; empty
  // when none is in any.
  [[nodiscard]] std::string Reason() const;

  // The phases that ended on every worker since the last call.
  [[nodiscard]] std::vector<v1::StartPhase> TakeEnded(Now now);
  // Writes start_phases.
  void Describe(Now now, v1::JobStatus& status) const;

 private:
  static constexpr size_t kPhases = 7;
  // One worker; `current` counts from 1, 0 is before the first and kPhases + 1 is done.
  struct Track {
    std::string worker;
    size_t current = 0;
    bool open = false;
    std::chrono::milliseconds since{0};
    std::array<double, kPhases + 2> seconds{};
    std::array<bool, kPhases + 2> began{};
  };
  static size_t NumberOf(const std::string& phase);  // 0: there is no such phase

  Track* Find(const std::string& worker);
  void Close(Track& track, Now now);
  bool Began(size_t phase) const;
  bool Ended(size_t phase) const;
  v1::StartPhase Show(size_t phase, Now now) const;

  std::vector<Track> tracks_;
  std::unordered_map<std::string, size_t> numbers_;  // of tracks
  size_t done_ = 0;                                  // of them
  std::array<bool, kPhases + 2> taken_{};
};

// `3.1 s`, or `40 ms` when it is less than a second.
[[nodiscard]] std::string FormatSeconds(double seconds);

}  // namespace ringmaster::coordinator
