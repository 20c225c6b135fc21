#include "worker/train/step_loop.h"

#include <algorithm>
#include <utility>

#include "common/failpoint.h"
#include "common/log.h"
#include "common/signals.h"
#include "worker/backend/failure.h"
#include "worker/state/watch.h"
#include "worker/train/state_check.h"

namespace ringmaster::worker {
namespace {

// Steps after which a state that no update reads is looked at.
constexpr uint64_t kCheckEvery = 16;

ReducerOptions ReducerOptionsOf(const TrainingJob& job, const Assignment& assignment,
                                ring::Link* link) {
  return {.link = link,
          .position = assignment.position,
          .reduce = job.options.reduce,
          .job = ring::JobHash(job.id.value()),
          .generation = assignment.generation,
          .ends_together = job.TrainedBytes() >= job.options.ends_together_bytes};
}

// Who follows keeps nothing in this generation: nobody waits for its word.
CheckpointPart PartOf(const Assignment& assignment, const RunPeers& peers,
                      const Follower* follower) {
  if (peers.sink == nullptr || follower != nullptr) return CheckpointPart::kNone;
  switch (assignment.position.rank) {
    case 0:
      return CheckpointPart::kDeliver;
    case 1:
      return CheckpointPart::kKeep;
    default:
      return CheckpointPart::kNone;
  }
}

}  // namespace

StepLoop::StepLoop(TrainingJob* job, const Assignment& assignment, const RunPeers& peers,
                   std::stop_token stop)
    : job_(job),
      assignment_(assignment),
      peers_(peers),
      stop_(std::move(stop)),
      follower_(job->follower),
      reader_(job->loader, {.shards = assignment.shards,
                            .start_step = assignment.start_step,
                            .input = job->options.input,
                            .stage = job->stage.get()}),
      reducer_(ReducerOptionsOf(*job, assignment, peers.link), &job->layout->blocks(),
               job->gradients.get(), &job->totals,
               job->device == nullptr ? nullptr : job->device->device(), &job->pulse),
      boundary_({.job = job,
                 .reader = &reader_,
                 .reducer = &reducer_,
                 .shards = assignment_.shards,
                 .times = &times_,
                 .checkpoints = PartOf(assignment, peers, follower_),
                 .observer = peers.observer,
                 .evaluated = assignment.evaluated},
                [this] { return abandoned(); }),
      reporter_(job, peers.link, peers.observer) {
  job->checkpoints.Begin(assignment.position.rank == 0 ? peers.sink : nullptr);
  on_stop_.emplace(stop_, [this] { EndWaits(); });
}

StepLoop::~StepLoop() {
  if (peers_.link != nullptr) job_->ring_bytes += peers_.link->bytes_sent();
}

void StepLoop::EndWaits() {
  reader_.Stop();
  if (follower_ != nullptr) follower_->Nudge();
  (void)reducer_.Leave(absl::CancelledError("the run was stopped"));
}

RunResult StepLoop::Run() {
  const RunResult result = ResultOf(Train());
  job_->pulse.set_phase("idle");
  return result;
}

RunResult StepLoop::ResultOf(const Status& status) {
  RunResult result;
  if (follower_ != nullptr) follower_->GiveUp();
  if (!job_->exact_sums()) job_->step_work.Drop();  // their order matters
  DescribeState(*job_, &result);
  result.times = times_;
  result.manifest_sha256 = manifest_sha256_;
  if (status.ok()) {
    result.end = RunEnd::kFinished;
    return result;
  }
  result.reason = Message(status);
  result.code = FailureOf(status);
  result.neighbour = ring::NeighbourOf(status);
  {
    MutexLock lock(job_->state_mu);  // who reads the state for a peer may see that it is lost
    if (!job_->lost_state.ok()) {
      result.reason = Message(job_->lost_state);
      result.code = FailureOf(job_->lost_state);
      return result;
    }
  }
  result.link_error = reducer_.link_error();
  if (follower_ != nullptr && follower_->failed()) {
    result.link_error = absl::StatusCode::kUnavailable;
    result.neighbour = follower_->source();
  }
  const bool link_failed = result.link_error != absl::StatusCode::kOk;
  result.end = stop_.stop_requested() ? RunEnd::kStopped
               : link_failed          ? RunEnd::kPeerLost
               : left_at_boundary_    ? RunEnd::kStopped
                                      : RunEnd::kFailed;
  return result;
}

void DescribeState(const TrainingJob& job, RunResult* result) {
  result->applied = job.state->step;
  result->digest = job.state->digest;
  result->folded = job.step_work.folded();
  result->evaluated = EvaluationsAreKnown(job);
}

// The next class map begins with the state that is held: others may compute what follows, and what
// is to be evaluated of it where the map says so.
bool StepLoop::MapEnds(Evaluated evaluated) const {
  const int next = assignment_.class_map + 1;
  if (next >= job_->spec().class_maps_size()) return false;
  const v1::ClassMap& map = job_->spec().class_maps(next);
  return map.step() == job_->state->step &&
         (evaluated == Evaluated::kYes || map.before_evaluation());
}

Status StepLoop::LeaveForMap() {
  left_at_boundary_ = true;
  return absl::CancelledError("the next class map begins");
}

Status StepLoop::Train() {
  RING_RETURN_IF_ERROR(ReachBoundary());
  while (!IsLast(job_->spec(), *job_->state)) {
    if (stop_.stop_requested()) return absl::CancelledError("the run was stopped");
    if (MapEnds(Evaluated::kYes)) return LeaveForMap();
    left_at_boundary_ = EndsHere();
    if (left_at_boundary_) return absl::CancelledError("the run was stopped at a step boundary");
    RING_RETURN_IF_ERROR(Step());
    RING_RETURN_IF_ERROR(ReachBoundary());
  }
  RING_RETURN_IF_ERROR(KeepUp(Follower::Awaits::kAll));
  Farewell();
  return DeliverLast();
}

// After the last step every moment is a boundary. A coordinator that forms the ring anew stores no
// checkpoint before this member has ended its run; its next run delivers it.
Status StepLoop::DeliverLast() {
  const EitherStop either(stop_, peers_.at_boundary);
  StatusOr<std::string> manifest = boundary_.Finish(either.token());
  left_at_boundary_ = absl::IsCancelled(manifest.status());
  RING_ASSIGN_OR_RETURN(manifest_sha256_, std::move(manifest));
  return absl::OkStatus();
}

// All members of a ring end at the same boundary: the one after the step whose record said so.
bool StepLoop::EndsHere() const {
  return peers_.link == nullptr ? peers_.at_boundary.stop_requested() : reducer_.ends_at_boundary();
}

// At this boundary, or behind one more step.
bool StepLoop::IsToEnd() const {
  return abandoned() || peers_.at_boundary.stop_requested() || EndsHere();
}

Status StepLoop::ReachBoundary() {
  if (MapEnds(Evaluated::kNo)) return LeaveForMap();
  HitFailpoint("boundary", job_->state->step, [this] { return IsToEnd(); });
  RING_ASSIGN_OR_RETURN(const Evaluated evaluated, boundary_.Reach());
  if (evaluated == Evaluated::kYes) reporter_.Evaluated();
  return absl::OkStatus();
}

Status StepLoop::Step() {
  const uint64_t step = job_->state->step;
  reducer_.Begin(Round::kStep, step);
  Status computed = Compute();
  if (computed.ok()) computed = KeepUp(Follower::Awaits::kNothing);
  ReducedSums sums = {.source = peers_.link == nullptr ? SumSource::kOwn : SumSource::kRing};
  const StatusOr<exact::Record> total = Reduce(&sums);
  RING_RETURN_IF_ERROR(Annotate(computed, fmt::format("step {}", step)));
  RING_RETURN_IF_ERROR(total.status());
  RING_RETURN_IF_ERROR(Finish(*total, std::move(sums)));
  if (job_->follower != nullptr) job_->follower->Nudge();  // pieces wait for this step
  reporter_.StepDone(total->samples(), times_);
  return absl::OkStatus();
}

Status StepLoop::Compute() {
  const PhaseScope phase(&job_->pulse, "compute", &times_.compute);
  StepWork& work = job_->step_work;
  work.Begin(WorkOfStep(job_->spec(), assignment_.shards, job_->state->step));
  const auto ready = [this](uint32_t bucket) { reducer_.BucketReady(bucket); };
  if (job_->device != nullptr && !work.keeps()) {
    const Status cleared = job_->device->device()->Clear(job_->state->loss_scale.inverse());
    if (!cleared.ok()) return reducer_.Leave(cleared);
  }
  if (work.keeps()) {
    job_->gradients->Continue(work.missing().size(), ready);
  } else {
    job_->gradients->Begin(work.missing().size(), job_->state->loss_scale.inverse(), ready);
  }
  const SumsTold told = peers_.link == nullptr ? SumsTold::kAtEnd : SumsTold::kByBucket;
  const Status computed = ComputeShards(
      job_, &reader_, work.missing(), told, [this] { return abandoned(); }, work.open());
  const double input = LongestInput(work.open(), job_->cores->size());
  times_.input += input;
  // A device that was down is no slow one.
  times_.compute -= LongestWait(work.open(), job_->cores->size());
  times_.input_work += reader_.TakeSeconds();
  work.Settle();
  return computed.ok() ? computed : reducer_.Leave(computed);
}

exact::Record StepLoop::OwnRecord() const {
  exact::Record own = job_->EmptyRecord();
  for (const ShardResult& result : job_->step_work.results()) AddToRecord(result, &own);
  return own;
}

// When shards are missing the run is over, and the reduction ends by itself.
StatusOr<exact::Record> StepLoop::Reduce(ReducedSums* sums) {
  StatusOr<exact::Record> total;
  double seconds = 0;
  const double update_before = times_.update;
  {
    const PhaseScope phase(&job_->pulse, "reduce", &seconds);
    const bool ends = peers_.at_boundary.stop_requested();
    if (job_->step_work.complete()) {
      reducer_.SubmitRecord(OwnRecord(), ends ? EndsAtBoundary::kAsked : EndsAtBoundary::kNo,
                            Predicts(job_->spec()) ? OwnRows(*job_) : RowBits());
      if (sums->source == SumSource::kRing && WeightUpdate::ReadsAhead(*job_)) {
        sums->begun = std::make_unique<WeightUpdate>(job_, sums->source);
        ReadAhead(sums->begun.get());
      }
    }
    total = reducer_.Wait();
  }
  seconds -= times_.update - update_before;
  // Of the ring's wait some may have passed beside what was read ahead.
  const double wait = std::min(seconds, reducer_.wait_seconds());
  times_.ring_wait += wait;
  times_.ring_transfer += seconds - wait;
  return total;
}

void StepLoop::ReadAhead(WeightUpdate* update) {
  for (auto buckets = reducer_.WaitForBuckets(); !buckets.empty();
       buckets = reducer_.WaitForBuckets()) {
    const PhaseScope phase(&job_->pulse, "update", &times_.update);
    update->ReadAhead(buckets, [this] { return abandoned(); });
  }
}

// Beside the ring, whose thread goes on: others compute meanwhile.
Status StepLoop::KeepUp(Follower::Awaits awaits) {
  if (job_->follower == nullptr) return absl::OkStatus();
  const PhaseScope phase(&job_->pulse, "reduce", &times_.ring_wait);
  const StatusOr<bool> whole = job_->follower->KeepUp(awaits, [this] { return abandoned(); });
  if (!whole.ok()) return reducer_.Leave(whole.status());
  if (!*whole) return absl::OkStatus();
  spdlog::info("state fetched: job={} step={} from={}, beside the ring", job_->id.value(),
               job_->state->step, follower_->source());
  if (peers_.observer != nullptr) peers_.observer->OnWhole();
  return absl::OkStatus();
}

Status StepLoop::Finish(const exact::Record& total, ReducedSums sums) {
  // First: who fails does not wait for a state that nobody will have.
  const StatusOr<Verdict> verdict = Judge(*job_, total);
  if (!verdict.ok()) {
    Farewell();
    return verdict.status();
  }
  RING_RETURN_IF_ERROR(KeepUp(Follower::Awaits::kNextState));
  const PhaseScope phase(&job_->pulse, "update", &times_.update);
  if (Predicts(job_->spec())) {
    TakeRows(job_, total, reducer_.TakeRows());
    // No update reads the state here.
    if (job_->state->step % kCheckEvery == 0) {
      if (const Status whole = CheckStateOnCores(job_); !whole.ok()) return reducer_.Leave(whole);
    }
    job_->pulse.set_applied(job_->state->step);
    return absl::OkStatus();
  }
  if (*verdict == Verdict::kApply) return Apply(total, std::move(sums));
  const Status skipped = SkipStep(job_, total, std::move(sums));
  if (!skipped.ok()) return reducer_.Leave(skipped);
  job_->pulse.set_applied(job_->state->step);
  reporter_.Skipped(DescribeFlag(*job_->layout, total));
  return absl::OkStatus();
}

Status StepLoop::Apply(const exact::Record& total, ReducedSums sums) {
  const uint32_t loss_scale = job_->state->loss_scale.value;
  const Status applied = ApplyStep(job_, total, std::move(sums));
  if (!applied.ok()) return reducer_.Leave(applied);
  job_->pulse.set_applied(job_->state->step);
  if (job_->state->loss_scale.value != loss_scale) reporter_.Grown();
  const Status status = job_->RefreshUpdated();
  return status.ok() ? status : reducer_.Leave(status);
}

void StepLoop::Farewell() {
  const PhaseScope phase(&job_->pulse, "farewell", &times_.ring_wait);
  reducer_.Begin(Round::kFarewell, job_->state->step);
  reducer_.SubmitRecord(exact::Record({.shards = 1}));
  (void)reducer_.Wait();
}

}  // namespace ringmaster::worker
