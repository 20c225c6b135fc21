// What is kept of a job: what happened to it, what of its progress is worth an event, and what is
// durable.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/job/class_map.h"
#include "ringmaster/v1/fleet.pb.h"
#include "ringmaster/v1/job.pb.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::coordinator {

// What happened to a job, oldest first, as Jobs.ListEvents shows it. A value: copies share what
// they hold until one of them grows, so that a view of a job costs no copy of its events.
// Thread-compatible; a copy may be read on any thread.
struct Now;  // event.h, whose records hold events

enum class Severity { kInfo, kWarning, kError };

// The words of v1::Event.type.
namespace event_type {
inline constexpr char kSubmitted[] = "Submitted";
inline constexpr char kStateChanged[] = "StateChanged";
inline constexpr char kPlaced[] = "Placed";
inline constexpr char kPhaseEntered[] = "PhaseEntered";
inline constexpr char kInitialized[] = "Initialized";
inline constexpr char kClassMap[] = "ClassMap";
inline constexpr char kFirstStep[] = "FirstStep";
inline constexpr char kEvaluated[] = "Evaluated";
inline constexpr char kCheckpointSaved[] = "CheckpointSaved";
inline constexpr char kCheckpointRemoved[] = "CheckpointRemoved";
inline constexpr char kCheckpointRetained[] = "CheckpointRetained";
inline constexpr char kCheckpointDropped[] = "CheckpointDropped";
inline constexpr char kCheckpointDiffers[] = "CheckpointDiffers";
inline constexpr char kLossScaleChanged[] = "LossScaleChanged";
inline constexpr char kStepsSkipped[] = "StepsSkipped";
inline constexpr char kCheckpointSkipped[] = "CheckpointSkipped";
inline constexpr char kRegrouped[] = "Regrouped";
inline constexpr char kRewound[] = "Rewound";
inline constexpr char kResumed[] = "Resumed";
inline constexpr char kAdopted[] = "Adopted";
inline constexpr char kWorkerJoined[] = "WorkerJoined";
inline constexpr char kWorkerLeft[] = "WorkerLeft";
inline constexpr char kWorkerReturned[] = "WorkerReturned";
inline constexpr char kWorkerRefused[] = "WorkerRefused";
inline constexpr char kWorkerLost[] = "WorkerLost";
inline constexpr char kWorkerFailed[] = "WorkerFailed";
inline constexpr char kStateFault[] = "StateFault";
inline constexpr char kUnforeseen[] = "Unforeseen";  // a bug of the coordinator
inline constexpr char kCancelled[] = "Cancelled";
inline constexpr char kFinished[] = "Finished";
}  // namespace event_type

// An event without number and time.
struct Happening {
  std::string type;
  Severity severity = Severity::kInfo;
  std::string message;
  std::string subject = "job";  // or the worker's name
};

class JobEvents {
 public:
  using List = std::vector<v1::Event>;

  JobEvents() = default;
  // As they were stored.
  explicit JobEvents(List events) : events_(std::make_shared<const List>(std::move(events))) {}

  // Numbered after the newest; the oldest are forgotten until at most `most` are left, >= 1.
  void Add(const Happening& happening, int64_t unix_ms, size_t most);

  const List& all() const;
  bool empty() const { return all().empty(); }
  // The states that the job went through, with their reasons, and whose state was wrong: the
  // messages of StateChanged, Cancelled, Finished and StateFault.
  [[nodiscard]] std::vector<std::string> Decisions() const;

 private:
  std::shared_ptr<const List> events_;
};

// What the progress of one job says that is worth an event: evaluations, skipped steps, changes of
// the loss scale. Owned by Logic, one a run, loop thread only. Of two evaluations with equal
// numbers one is told. A run of skipped steps is one event, told when it ended; changes of the loss
// scale and ends of such runs are told at most every kQuiet, so that a job which skips for ever
// does not push everything else out of the list.
class ProgressEvents {
 public:
  static constexpr std::chrono::milliseconds kQuiet{10'000};

  ProgressEvents() = default;
  // What this says was told before: by the coordinator's earlier reign.
  explicit ProgressEvents(const v1::JobStatus& told);

  // `status` after each progress; step, updates and the metrics are looked at.
  [[nodiscard]] std::vector<Happening> Observe(const v1::JobStatus& status, Now now);
  // What was held back; the job ended.
  [[nodiscard]] std::vector<Happening> Flush();

 private:
  using Time = std::chrono::milliseconds;
  void ObserveEvaluation(const v1::JobStatus& status, std::vector<Happening>& told);
  void ObserveSkips(const v1::JobStatus& status, Now now, std::vector<Happening>& told);
  void ObserveScale(const v1::JobStatus& status, Now now, std::vector<Happening>& told);
  void TellSkips(std::vector<Happening>& told);
  void TellScale(std::vector<Happening>& told);
  static bool Quiet(const std::optional<Time>& told_at, Now now);

  std::string evaluation_;                                // the newest
  uint64_t step_ = 0, skipped_ = 0;                       // of the newest progress
  uint64_t run_begin_ = 0, run_end_ = 0, run_skips_ = 0;  // steps (begin, end], not told yet
  std::optional<Time> skips_told_at_;
  std::optional<double> scale_, scale_told_;
  uint64_t scale_step_ = 0;
  std::optional<Time> scale_told_at_;
};

// Begins the idempotency keys of the folds of a cross-validation, and of no client.
inline constexpr char kFoldKey[] = "fold ";

// What is durable about a job, a checkpoint and a drain, as plain values: made by the logic, kept
// by the store. Thread-compatible.
struct JobRecord {
  uint64_t number = 0;  // 1, 2, ...: the order of submission; the job id is made of it
  std::string idempotency_key;
  std::string spec_sha256;  // hex, of the spec as submitted: tells a retry from another job
  bool cancel_requested = false;
  v1::JobStatus status;  // with the spec; progress only as it was at the last change of state
  std::optional<v1::ResolvedJob> resolved;
  JobEvents events;

  const std::string& id() const { return status.job_id(); }
};

// Whose checkpoints it may need as long as it has not ended, and the job that it is a fold of.
[[nodiscard]] std::set<std::string> JobsNeededBy(const JobRecord& record);

// What is left of a job that was removed: nobody else is given its number, or its key.
struct RemovedJob {
  uint64_t number = 0;
  std::string job_id, idempotency_key, spec_sha256;
};

// A worker that takes no job: this process of it, or, without an incarnation, none any more.
struct DrainRecord {
  std::string worker, incarnation;
};

struct CheckpointRecord {
  std::string job_id;
  v1::CheckpointRef ref;
  bool best = false;  // by checkpoint.best, of all states before it
};

// A whole checkpoint of a known job in the folder that the store does not know: it is older than
// the folder.
struct StrayCheckpoint {
  std::string job_id;
  v1::CheckpointRef ref;
  std::string result_digest;  // hex, as its manifest says
  job::ClassMaps class_maps;  // as it says, without their numerics
};

// ---- generations --------------------------------------------------------------------------------

// Numbers of generations: never the same twice, as the term is durable. Owned by Logic, loop thread
// only.

// The highest that the store can hold.
inline constexpr uint64_t kMaxTerm = INT64_MAX;

class GenerationSource {
 public:
  // Nothing happens when it is not higher: the numbers of that term may be used already.
  void BeginTerm(uint64_t term) {
    if (term > newest_.term) newest_ = {term, 0};
  }
  uint64_t term() const { return newest_.term; }
  GenerationId Next() {
    ++newest_.counter;
    return newest_;
  }

 private:
  GenerationId newest_;
};

[[nodiscard]] inline v1::Generation ToProto(const GenerationId& id) {
  v1::Generation generation;
  generation.set_term(id.term);
  generation.set_counter(id.counter);
  return generation;
}
[[nodiscard]] inline GenerationId FromProto(const v1::Generation& generation) {
  return {generation.term(), generation.counter()};
}

}  // namespace ringmaster::coordinator
