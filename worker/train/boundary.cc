#include "worker/train/boundary.h"

#include <chrono>
#include <optional>
#include <utility>

#include "common/failpoint.h"
#include "common/job/shards.h"
#include "common/log.h"
#include "worker/state/watch.h"
#include "worker/train/evaluation.h"
#include "worker/train/state_check.h"
#include "worker/train/state_exchange.h"

namespace ringmaster::worker {

bool EvaluationIsDue(const TrainingJob& job) {
  const v1::ResultSpec& spec = job.spec();
  return !Predicts(spec) &&
         job::EvaluatesAfter(job.state->step, spec.evaluation_steps(), spec.total_steps());
}

bool EvaluationsAreKnown(const TrainingJob& job) {
  if (!EvaluationIsDue(job)) return true;
  const auto known = [&](const std::optional<Evaluation>& newest) {
    return newest && newest->step == job.state->step;
  };
  const bool validates = job.loader->evaluation_batches(job::SampleSet::kValidation) > 0;
  return known(job.newest_test) && (!validates || known(job.newest_validation));
}

Boundary::Boundary(const BoundaryParts& parts, std::function<bool()> abandoned)
    : parts_(parts), job_(parts.job), abandoned_(std::move(abandoned)) {
  if (!job_->checkpoint_began) job_->checkpoint_began = std::chrono::steady_clock::now();
}

StatusOr<std::string> Boundary::Finish(const std::stop_token& stop) {
  if (parts_.checkpoints != CheckpointPart::kDeliver) return std::string();
  const PhaseScope phase(&job_->pulse, "checkpoint", &parts_.times->checkpoint);
  return job_->checkpoints.Finish(stop);
}

bool Boundary::LastStep() const { return IsLast(job_->spec(), *job_->state); }

// By time the first member alone writes, and never waits for it.
Boundary::Due Boundary::CheckpointDue() const {
  const v1::CheckpointOptions& options = job_->resolved.checkpoint();
  const uint64_t step = job_->state->step;
  if (step == 0) return Due::kNo;
  if (LastStep()) return Due::kStep;
  if (options.every_steps() > 0 && step % options.every_steps() == 0) return Due::kStep;
  const bool by_time =
      options.every_seconds() > 0 && parts_.checkpoints == CheckpointPart::kDeliver;
  if (!by_time) return Due::kNo;
  const std::chrono::duration<double> age =
      std::chrono::steady_clock::now() - *job_->checkpoint_began;
  return age.count() >= options.every_seconds() ? Due::kTime : Due::kNo;
}

// Without a watched metric the copy is taken first, so that its delivery runs beside the
// evaluation; with one the evaluation has a say, and what it sets is part of the copy.
StatusOr<Evaluated> Boundary::Reach() {
  FlipForTests(job_);
  const bool watches = !job_->state->watched.empty();
  if (!watches) RING_RETURN_IF_ERROR(WriteCheckpoint(CheckpointDue(), {}));
  const bool known = std::exchange(first_, false) && parts_.evaluated;
  const auto evaluated = EvaluationIsDue(*job_) && !known ? Evaluated::kYes : Evaluated::kNo;
  if (evaluated == Evaluated::kYes) RING_RETURN_IF_ERROR(EvaluateAll());
  if (!watches) return evaluated;
  const Standing standing = LookForBest();
  RING_RETURN_IF_ERROR(WriteCheckpoint(standing.best ? Due::kStep : CheckpointDue(), standing));
  return evaluated;
}

Standing Boundary::LookForBest() {
  MutexLock lock(job_->state_mu);
  return LookAt(job_->spec(), job_->newest_validation, job_->newest_test, job_->state.get());
}

Status Boundary::EvaluateAll() {
  const PhaseScope phase(&job_->pulse, "evaluate", &parts_.times->evaluate);
  HitFailpoint("evaluate", job_->state->step);
  // Of a state that is not whole nothing is computed.
  const bool shows = job_->spec().optimizer().ema().evaluate() && job_->follower == nullptr;
  if (!shows) return EvaluateSets();
  const Status shown = job_->ShowAverage();
  const Status status = shown.ok() ? EvaluateSets() : shown;
  const Status refreshed = job_->RefreshWeights();  // whatever went wrong: others go on
  if (!refreshed.ok()) return parts_.reducer->Leave(refreshed);
  return shown.ok() ? status : parts_.reducer->Leave(shown);
}

Status Boundary::EvaluateSets() {
  if (job_->loader->evaluation_batches(job::SampleSet::kValidation) > 0) {
    RING_ASSIGN_OR_RETURN(const Evaluation validation,
                          Evaluate(job::SampleSet::kValidation, Round::kValidation));
    MutexLock lock(job_->state_mu);
    job_->newest_validation = validation;
  }
  RING_ASSIGN_OR_RETURN(const Evaluation test, Evaluate(job::SampleSet::kTest, Round::kTest));
  MutexLock lock(job_->state_mu);
  job_->newest_test = test;
  return absl::OkStatus();
}

StatusOr<Evaluation> Boundary::Evaluate(job::SampleSet set, Round round) {
  const uint64_t step = job_->state->step;
  parts_.reducer->Begin(round, step);
  const StatusOr<std::optional<exact::Record>> own =
      EvaluateShards(job_, parts_.reader, parts_.shards, set, abandoned_);
  if (!own.ok()) (void)parts_.reducer->Leave(own.status());
  // Nothing is handed over when abandoned: the round ends by itself.
  if (own.ok() && own->has_value()) parts_.reducer->SubmitRecord(**own);
  const StatusOr<exact::Record> total = parts_.reducer->Wait();
  RING_RETURN_IF_ERROR(Annotate(own.status(), fmt::format("evaluation after step {}", step)));
  RING_RETURN_IF_ERROR(total.status());
  const Evaluation result = ResultOf(step, *job_->layout, *total);
  spdlog::info("evaluated: job={} step={} set={} samples={}{}", job_->id.value(), step,
               set == job::SampleSet::kTest ? "test" : "validation", total->samples(),
               LogText(result.metrics));
  return result;
}

// False: the copy that is due is the one to do without.
bool Boundary::MakeRoom(const Standing& standing) {
  const uint64_t step = job_->state->step;
  const std::optional<DroppedCheckpoint> dropped =
      job_->checkpoints.MakeRoom(step, standing, LastStep());
  if (!dropped) return true;
  // What the second member keeps is in case the first one dies: nobody misses it yet.
  const bool delivers = parts_.checkpoints == CheckpointPart::kDeliver;
  if (delivers && parts_.observer != nullptr) {
    parts_.observer->OnCheckpointDropped(dropped->step, dropped->reason);
  }
  return dropped->step != step;
}

Status Boundary::WriteCheckpoint(Due due, const Standing& standing) {
  if (due == Due::kNo || parts_.checkpoints == CheckpointPart::kNone) return absl::OkStatus();
  if (job_->checkpoints.Covers(job_->state->step, LastStep())) return absl::OkStatus();
  const PhaseScope phase(&job_->pulse, "checkpoint", &parts_.times->checkpoint);
  const Status earlier = job_->checkpoints.status();
  if (!earlier.ok()) return parts_.reducer->Leave(earlier);
  if (!MakeRoom(standing)) return absl::OkStatus();
  job_->checkpoint_began = std::chrono::steady_clock::now();
  if (const Status whole = CheckStateOnCores(job_); !whole.ok()) {
    return parts_.reducer->Leave(whole);
  }
  RING_ASSIGN_OR_RETURN(std::vector<CheckpointFile> files, CopyState(*job_->state));
  job_->checkpoints.Keep({.facts = FactsOf(*job_),
                          .standing = standing,
                          .last = LastStep(),
                          .files = std::move(files)});
  return absl::OkStatus();
}

}  // namespace ringmaster::worker
