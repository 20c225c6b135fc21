#include "worker/train/step_loop.h"

#include <chrono>
#include <utility>

#include "common/job/resolve.h"
#include "common/job/shards.h"
#include "worker/train/checkpoint.h"
#include "worker/train/evaluation.h"
#include "worker/train/update.h"

namespace ringmaster::worker {
namespace {

ReducerOptions ReducerOptionsOf(const TrainingJob& job, const Assignment& assignment,
                                ring::Link* link) {
  return {.link = link,
          .position = assignment.position,
          .reduce = job.options.reduce,
          .job = ring::JobHash(job.id.value()),
          .generation = assignment.generation};
}

}  // namespace

StepLoop::StepLoop(TrainingJob* job, const Assignment& assignment, const RunPeers& peers,
                   std::stop_token stop)
    : job_(job),
      assignment_(assignment),
      peers_(peers),
      stop_(std::move(stop)),
      total_steps_(job->spec().total_steps()),
      reader_(job->loader, {.shards = assignment.shards, .start_step = assignment.start_step}),
      reducer_(ReducerOptionsOf(*job, assignment, peers.link), &job->state->layout->blocks(),
               job->gradients.get(), &job->totals, &job->pulse),
      rate_(std::chrono::steady_clock::now()) {
  if (assignment.position.rank == 0 && peers.sink != nullptr) writer_.emplace(peers.sink);
  on_stop_.emplace(stop_, [this] { EndWaits(); });
}

StepLoop::~StepLoop() {
  if (peers_.link != nullptr) job_->ring_bytes += peers_.link->bytes_sent();
}

void StepLoop::EndWaits() {
  const Status reason = absl::CancelledError("the run was stopped");
  reader_.Stop();
  if (writer_) writer_->Stop();
  reducer_.Abort(reason);
  if (peers_.link != nullptr) peers_.link->Cancel(reason);
}

Status StepLoop::Fail(Status reason) {
  reducer_.Abort(reason);
  if (peers_.link != nullptr) peers_.link->Cancel(reason);
  return reason;
}

RunResult StepLoop::Run() {
  const RunResult result = ResultOf(Train());
  job_->pulse.set_phase("idle");
  return result;
}

RunResult StepLoop::ResultOf(const Status& status) {
  RunResult result;
  result.applied = job_->state->step;
  result.digest = job_->state->digest;
  result.times = times_;
  result.manifest_sha256 = manifest_sha256_;
  if (status.ok()) {
    result.end = RunEnd::kFinished;
    return result;
  }
  result.reason = Message(status);
  result.link_error = link_error_;
  const bool link_failed = link_error_ != absl::StatusCode::kOk;
  result.end = stop_.stop_requested() ? RunEnd::kStopped
               : link_failed          ? RunEnd::kPeerLost
                                      : RunEnd::kFailed;
  return result;
}

Status StepLoop::Train() {
  RING_RETURN_IF_ERROR(AtBoundary());
  while (job_->state->step < total_steps_) {
    if (stop_.stop_requested()) return absl::CancelledError("the run was stopped");
    RING_RETURN_IF_ERROR(Step());
    RING_RETURN_IF_ERROR(AtBoundary());
  }
  Farewell();
  if (!writer_) return absl::OkStatus();
  const PhaseScope phase(&job_->pulse, "checkpoint", &times_.checkpoint);
  RING_ASSIGN_OR_RETURN(manifest_sha256_, writer_->Finish());
  return absl::OkStatus();
}

Status StepLoop::Step() {
  const uint64_t step = job_->state->step;
  reducer_.Begin(Round::kStep, step);
  StatusOr<exact::Record> own = Compute();
  if (own.ok()) reducer_.SubmitRecord(*own);
  const StatusOr<exact::Record> total = Reduce();
  RING_RETURN_IF_ERROR(Annotate(own.status(), fmt::format("step {}", step)));
  RING_RETURN_IF_ERROR(total.status());
  const Status flags = CheckFlags(*job_->state->layout, step, *total);
  if (!flags.ok()) {
    Farewell();
    return flags;
  }
  RING_RETURN_IF_ERROR(Apply(*total));
  rate_.Add(total->samples(), std::chrono::steady_clock::now());
  Report();
  return absl::OkStatus();
}

StatusOr<exact::Record> StepLoop::Compute() {
  const PhaseScope phase(&job_->pulse, "compute", &times_.compute);
  const std::vector<BatchId> work =
      TrainingWork(job_->spec(), assignment_.shards, job_->state->step);
  job_->gradients->Begin(work.size(), [this](uint32_t bucket) { reducer_.BucketReady(bucket); });
  const Status computed = ComputeShards(
      job_, &reader_, work, [this] { return abandoned(); }, &results_);
  if (!computed.ok()) return Fail(computed);
  exact::Record own = job_->EmptyRecord();
  if (abandoned()) return own;
  for (size_t i = 0; i < work.size(); ++i) AddToRecord(results_[i], &own);
  return own;
}

StatusOr<exact::Record> StepLoop::Reduce() {
  const PhaseScope phase(&job_->pulse, "reduce", &times_.reduce);
  StatusOr<exact::Record> total = reducer_.Wait();
  if (!total.ok() && !reducer_.aborted()) link_error_ = total.status().code();
  return total;
}

Status StepLoop::Apply(const exact::Record& total) {
  const PhaseScope phase(&job_->pulse, "update", &times_.update);
  ApplyStep(job_, total);
  job_->pulse.set_applied(job_->state->step);
  const Status status = job_->RefreshWeights();
  return status.ok() ? status : Fail(status);
}

void StepLoop::Farewell() {
  const PhaseScope phase(&job_->pulse, "farewell", &times_.reduce);
  reducer_.Begin(Round::kFarewell, job_->state->step);
  reducer_.SubmitRecord(exact::Record(1, 0));
  (void)reducer_.Wait();
}

bool StepLoop::CheckpointIsDue() const {
  const uint64_t step = job_->state->step;
  const uint64_t every = job_->resolved.checkpoint().every_steps();
  return step == total_steps_ || (step > 0 && every > 0 && step % every == 0);
}

bool StepLoop::EvaluationIsDue() const {
  return job::EvaluatesAfter(job_->state->step, job_->spec().steps_per_epoch(), total_steps_);
}

Status StepLoop::AtBoundary() {
  if (writer_ && CheckpointIsDue()) RING_RETURN_IF_ERROR(SubmitCheckpoint());
  if (EvaluationIsDue()) RING_RETURN_IF_ERROR(Evaluate());
  return absl::OkStatus();
}

Status StepLoop::SubmitCheckpoint() {
  const PhaseScope phase(&job_->pulse, "checkpoint", &times_.checkpoint);
  RING_ASSIGN_OR_RETURN(std::vector<CheckpointFile> files, CopyState(*job_->state));
  const ManifestFacts facts{.step = job_->state->step,
                            .digest = job_->state->digest,
                            .result_digest = job::ResultDigest(job_->spec()),
                            .exact = job_->spec().reduction() == v1::REDUCTION_EXACT};
  const Status status = writer_->Submit(facts, std::move(files));
  return status.ok() ? status : Fail(status);
}

Status StepLoop::Evaluate() {
  const PhaseScope phase(&job_->pulse, "evaluate", &times_.evaluate);
  const uint64_t step = job_->state->step;
  reducer_.Begin(Round::kEvaluation, step);
  StatusOr<exact::Record> own =
      EvaluateShards(job_, &reader_, assignment_.shards, [this] { return abandoned(); });
  if (own.ok()) {
    reducer_.SubmitRecord(*own);
  } else {
    own = Fail(own.status());
  }
  const StatusOr<exact::Record> total = Reduce();
  RING_RETURN_IF_ERROR(Annotate(own.status(), fmt::format("evaluation after step {}", step)));
  RING_RETURN_IF_ERROR(total.status());
  job_->newest_test = worker::ResultOf(step, *total);
  Report();
  return absl::OkStatus();
}

void StepLoop::Report() {
  if (peers_.observer == nullptr) return;
  const State& state = *job_->state;
  Progress progress;
  progress.applied = state.step;
  progress.digest = state.digest;
  progress.epoch = state.step / job_->spec().steps_per_epoch();
  progress.loss = state.metrics.loss();
  progress.accuracy = state.metrics.accuracy();
  if (job_->newest_test) {
    progress.test_accuracy = job_->newest_test->accuracy;
    progress.test_loss = job_->newest_test->loss;
  }
  progress.samples_per_second = rate_.samples_per_second();
  progress.ring_bytes = job_->ring_bytes;
  if (peers_.link != nullptr) progress.ring_bytes += peers_.link->bytes_sent();
  peers_.observer->OnProgress(progress);
}

}  // namespace ringmaster::worker
