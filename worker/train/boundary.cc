#include "worker/train/boundary.h"

#include <utility>

#include "common/job/resolve.h"
#include "common/job/shards.h"
#include "common/log.h"
#include "worker/train/checkpoint.h"
#include "worker/train/evaluation.h"

namespace ringmaster::worker {

Boundary::Boundary(const BoundaryParts& parts, std::function<bool()> abandoned)
    : parts_(parts), job_(parts.job), abandoned_(std::move(abandoned)) {
  if (parts.sink != nullptr) writer_.emplace(parts.sink);
}

void Boundary::Stop() {
  if (writer_) writer_->Stop();
}

StatusOr<std::string> Boundary::Finish() {
  if (!writer_) return std::string();
  const PhaseScope phase(&job_->pulse, "checkpoint", &parts_.times->checkpoint);
  return writer_->Finish();
}

bool Boundary::EvaluationIsDue() const {
  const v1::ResultSpec& spec = job_->spec();
  return job::EvaluatesAfter(job_->state->step, spec.steps_per_epoch(), spec.total_steps());
}

bool Boundary::CheckpointIsDue() const {
  const uint64_t step = job_->state->step;
  const uint64_t every = job_->resolved.checkpoint().every_steps();
  return step == job_->spec().total_steps() || (step > 0 && every > 0 && step % every == 0);
}

// Without `checkpoint.best` the copy is taken first, so that its delivery runs beside the
// evaluation; with it the evaluation has a say.
StatusOr<Evaluated> Boundary::Reach() {
  const bool by_metric = job_->best.wanted();
  if (!by_metric && CheckpointIsDue()) RING_RETURN_IF_ERROR(WriteCheckpoint({}));
  const auto evaluated = EvaluationIsDue() ? Evaluated::kYes : Evaluated::kNo;
  if (evaluated == Evaluated::kYes) RING_RETURN_IF_ERROR(EvaluateAll());
  if (!by_metric) return evaluated;
  const Standing standing =
      job_->best.Look(job_->state->step, job_->newest_validation, job_->newest_test);
  if (standing.best || CheckpointIsDue()) RING_RETURN_IF_ERROR(WriteCheckpoint(standing));
  return evaluated;
}

Status Boundary::EvaluateAll() {
  const PhaseScope phase(&job_->pulse, "evaluate", &parts_.times->evaluate);
  if (job_->loader->evaluation_batches(job::SampleSet::kValidation) > 0) {
    RING_ASSIGN_OR_RETURN(job_->newest_validation,
                          Evaluate(job::SampleSet::kValidation, Round::kValidation));
  }
  RING_ASSIGN_OR_RETURN(job_->newest_test, Evaluate(job::SampleSet::kTest, Round::kTest));
  return absl::OkStatus();
}

StatusOr<Evaluation> Boundary::Evaluate(job::SampleSet set, Round round) {
  const uint64_t step = job_->state->step;
  parts_.reducer->Begin(round, step);
  StatusOr<exact::Record> own = EvaluateShards(job_, parts_.reader, parts_.shards, set, abandoned_);
  if (own.ok()) {
    parts_.reducer->SubmitRecord(*own);
  } else {
    own = parts_.reducer->Leave(own.status());
  }
  const StatusOr<exact::Record> total = parts_.reducer->Wait();
  RING_RETURN_IF_ERROR(Annotate(own.status(), fmt::format("evaluation after step {}", step)));
  RING_RETURN_IF_ERROR(total.status());
  const Evaluation result = ResultOf(step, *total);
  spdlog::info("evaluated: job={} step={} set={} samples={} accuracy={:.4f} loss={}",
               job_->id.value(), step, set == job::SampleSet::kTest ? "test" : "validation",
               total->samples(), result.accuracy,
               result.loss ? fmt::format("{:.4f}", *result.loss) : "not finite");
  return result;
}

Status Boundary::WriteCheckpoint(const Standing& standing) {
  if (!writer_) return absl::OkStatus();
  const PhaseScope phase(&job_->pulse, "checkpoint", &parts_.times->checkpoint);
  RING_ASSIGN_OR_RETURN(std::vector<CheckpointFile> files, CopyState(*job_->state));
  const ManifestFacts facts{.step = job_->state->step,
                            .digest = job_->state->digest,
                            .result_digest = job::ResultDigest(job_->spec()),
                            .exact = job_->spec().reduction() == v1::REDUCTION_EXACT};
  const Status status = writer_->Submit(facts, standing, std::move(files));
  return status.ok() ? status : parts_.reducer->Leave(status);
}

}  // namespace ringmaster::worker
