#include "worker/train/step_loop.h"

#include <utility>

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
      reader_(job->loader, {.shards = assignment.shards, .start_step = assignment.start_step}),
      reducer_(ReducerOptionsOf(*job, assignment, peers.link), &job->layout->blocks(),
               job->gradients.get(), &job->totals, &job->pulse),
      boundary_({.job = job,
                 .reader = &reader_,
                 .reducer = &reducer_,
                 .shards = assignment_.shards,
                 .sink = assignment.position.rank == 0 ? peers.sink.get() : nullptr,
                 .times = &times_},
                [this] { return abandoned(); }),
      reporter_(job, peers.link, peers.observer) {
  on_stop_.emplace(stop_, [this] { EndWaits(); });
}

StepLoop::~StepLoop() {
  if (peers_.link != nullptr) job_->ring_bytes += peers_.link->bytes_sent();
}

void StepLoop::EndWaits() {
  reader_.Stop();
  boundary_.Stop();
  (void)reducer_.Leave(absl::CancelledError("the run was stopped"));
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
  result.link_error = reducer_.link_error();
  const bool link_failed = result.link_error != absl::StatusCode::kOk;
  result.end = stop_.stop_requested() ? RunEnd::kStopped
               : link_failed          ? RunEnd::kPeerLost
                                      : RunEnd::kFailed;
  return result;
}

Status StepLoop::Train() {
  RING_RETURN_IF_ERROR(ReachBoundary());
  while (job_->state->step < job_->spec().total_steps()) {
    if (stop_.stop_requested()) return absl::CancelledError("the run was stopped");
    RING_RETURN_IF_ERROR(Step());
    RING_RETURN_IF_ERROR(ReachBoundary());
  }
  Farewell();
  RING_ASSIGN_OR_RETURN(manifest_sha256_, boundary_.Finish());
  return absl::OkStatus();
}

Status StepLoop::ReachBoundary() {
  RING_ASSIGN_OR_RETURN(const Evaluated evaluated, boundary_.Reach());
  if (evaluated == Evaluated::kYes) reporter_.Evaluated();
  return absl::OkStatus();
}

Status StepLoop::Step() {
  const uint64_t step = job_->state->step;
  reducer_.Begin(Round::kStep, step);
  const StatusOr<exact::Record> own = Compute();
  const StatusOr<exact::Record> total = Reduce(own);
  RING_RETURN_IF_ERROR(Annotate(own.status(), fmt::format("step {}", step)));
  RING_RETURN_IF_ERROR(total.status());
  RING_RETURN_IF_ERROR(Finish(*total));
  reporter_.StepDone(total->samples(), times_);
  return absl::OkStatus();
}

StatusOr<exact::Record> StepLoop::Compute() {
  const std::vector<BatchId> work =
      TrainingWork(job_->spec(), assignment_.shards, job_->state->step);
  Status computed;
  {
    const PhaseScope phase(&job_->pulse, "compute", &times_.compute);
    job_->gradients->Begin(work.size(), job_->state->loss_scale.inverse(),
                           [this](uint32_t bucket) { reducer_.BucketReady(bucket); });
    computed = ComputeShards(
        job_, &reader_, work, [this] { return abandoned(); }, &results_);
  }
  if (!computed.ok()) return reducer_.Leave(computed);
  exact::Record own = job_->EmptyRecord();
  if (abandoned()) return own;
  const std::span<const ShardResult> results(results_.data(), work.size());
  const double input = LongestInput(results, job_->cores->size());
  times_.input += input;
  times_.compute -= input;
  for (const ShardResult& result : results) AddToRecord(result, &own);
  return own;
}

StatusOr<exact::Record> StepLoop::Reduce(const StatusOr<exact::Record>& own) {
  StatusOr<exact::Record> total;
  {
    const PhaseScope phase(&job_->pulse, "reduce", &times_.ring_transfer);
    if (own.ok()) reducer_.SubmitRecord(*own);
    total = reducer_.Wait();
  }
  times_.ring_wait += reducer_.wait_seconds();
  times_.ring_transfer -= reducer_.wait_seconds();
  return total;
}

Status StepLoop::Finish(const exact::Record& total) {
  const StatusOr<Verdict> verdict = Judge(*job_, total);
  if (!verdict.ok()) {
    Farewell();
    return verdict.status();
  }
  const PhaseScope phase(&job_->pulse, "update", &times_.update);
  if (*verdict == Verdict::kApply) return Apply(total);
  SkipStep(job_, total);
  job_->pulse.set_applied(job_->state->step);
  reporter_.Skipped(DescribeFlag(*job_->layout, total));
  return absl::OkStatus();
}

Status StepLoop::Apply(const exact::Record& total) {
  const uint32_t loss_scale = job_->state->loss_scale.value;
  ApplyStep(job_, total);
  job_->pulse.set_applied(job_->state->step);
  if (job_->state->loss_scale.value != loss_scale) reporter_.Grown();
  const Status status = job_->RefreshWeights();
  return status.ok() ? status : reducer_.Leave(status);
}

void StepLoop::Farewell() {
  const PhaseScope phase(&job_->pulse, "farewell", &times_.ring_wait);
  reducer_.Begin(Round::kFarewell, job_->state->step);
  reducer_.SubmitRecord(exact::Record(1, 0));
  (void)reducer_.Wait();
}

}  // namespace ringmaster::worker
