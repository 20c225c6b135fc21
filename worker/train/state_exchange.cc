#include "worker/train/state_exchange.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "common/job/resolve.h"
#include "worker/state/watch.h"
#include "worker/train/state_check.h"

namespace ringmaster::worker {
namespace {

// What is known of the past of a state.
struct Past {
  std::optional<Evaluation> validation, test;
};

bool IsOf(const StateCopy& copy, const TrainingJob& job) {
  return copy.step == job.state->step && copy.digest == job.state->digest &&
         copy.validation == job.newest_validation && copy.test == job.newest_test;
}

State EmptyState(const TrainingJob& job) {
  return {job.layout, static_cast<int>(job.spec().precision_bits()), NothingWatched(job.spec()),
          PredictedOf(job.spec())};
}

// The former state comes back in `fresh`: the weights point into it until they are refreshed.
Status Swap(State* fresh, TrainingJob* job) {
  {
    MutexLock lock(job->state_mu);
    RING_RETURN_IF_ERROR(job->BringToHost());
    std::swap(*job->state, *fresh);
  }
  return job->RefreshWeights();
}

Status Replace(State fresh, const Past& past, TrainingJob* job) {
  if (fresh.step > job->spec().total_steps()) {
    return Error(absl::StatusCode::kDataLoss, "a state of step {} of a job with {} steps",
                 fresh.step, job->spec().total_steps());
  }
  const Status refreshed = Swap(&fresh, job);
  if (!refreshed.ok()) {
    const Status back = Swap(&fresh, job);
    return back.ok() ? refreshed
                     : Internal("{}; and the former weights are lost: {}", Message(refreshed),
                                Message(back));
  }
  {
    MutexLock lock(job->state_mu);
    job->newest_validation = past.validation;
    job->newest_test = past.test;
    job->lost_state.clear();
    job->state_differs = false;
  }
  job->step_work.Drop();
  job->pulse.set_applied(job->state->step);
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::shared_ptr<const StateCopy>> ShareState(TrainingJob* job, uint64_t step) {
  MutexLock copying(job->copy_mu);
  MutexLock lock(job->state_mu);
  const State& state = *job->state;
  if (!job->lost_state.empty()) return FailedPrecondition("{}", job->lost_state);
  if (step > state.step) {
    return Error(absl::StatusCode::kUnavailable,
                 "the state of step {} is not there yet, this worker holds that of {}", step,
                 state.step);
  }
  if (step < state.step) {
    return FailedPrecondition("the state of step {} is gone, this worker holds that of {}", step,
                              state.step);
  }
  if (auto shared = job->newest_copy.lock(); shared != nullptr && IsOf(*shared, *job)) {
    return shared;
  }
  auto copy = std::make_shared<StateCopy>();
  copy->step = state.step;
  copy->digest = state.digest;
  copy->validation = job->newest_validation;
  copy->test = job->newest_test;
  RING_RETURN_IF_ERROR(CheckState(job, &OneAfterAnother));
  RING_ASSIGN_OR_RETURN(copy->files, CopyState(state));
  job->newest_copy = copy;
  return std::shared_ptr<const StateCopy>(std::move(copy));
}

namespace {

// Evaluations come beside what the digest covers.
Status CheckEvaluation(const std::optional<Evaluation>& evaluation, const StateLayout& layout) {
  if (!evaluation) return absl::OkStatus();
  for (const graph::Metric& metric : evaluation->metrics) {
    const bool known = metric.name == graph::kMinimized ||
                       std::ranges::any_of(layout.outputs(), [&](const graph::Output& output) {
                         return output.name == metric.name;
                       });
    if (!known || !std::isfinite(metric.value)) {
      return DataLoss("a peer's evaluation has a metric that the model has not, or not a number");
    }
  }
  return absl::OkStatus();
}

}  // namespace

Status AdoptCopy(const StateCopy& copy, const Sha256Digest& digest, TrainingJob* job) {
  RING_RETURN_IF_ERROR(CheckEvaluation(copy.validation, *job->layout));
  RING_RETURN_IF_ERROR(CheckEvaluation(copy.test, *job->layout));
  State fresh = EmptyState(*job);
  RING_RETURN_IF_ERROR(SetState(copy.files, &fresh));
  const bool same = copy.digest == digest && fresh.digest == digest && fresh.step == copy.step;
  if (!same) {
    return Error(absl::StatusCode::kDataLoss,
                 "the copy of a peer's state is another one: expected step {} with digest {}, got "
                 "step {} with digest {}",
                 copy.step, Hex(digest), fresh.step, Hex(fresh.digest));
  }
  RING_RETURN_IF_ERROR(Replace(std::move(fresh), {copy.validation, copy.test}, job));
  job->checkpoints.Rewind();
  return absl::OkStatus();
}

Status AdoptCheckpoint(const Checkpoint& checkpoint, TrainingJob* job) {
  State fresh = EmptyState(*job);
  RING_RETURN_IF_ERROR(RestoreState(checkpoint, job->spec(), &fresh));
  RING_RETURN_IF_ERROR(Replace(std::move(fresh), {}, job));
  job->checkpoints.Rewind();
  return absl::OkStatus();
}

ManifestFacts FactsOf(const TrainingJob& job) {
  return {.step = job.state->step,
          .digest = job.state->digest,
          .result_digest = job::ResultDigest(job.spec()),
          .model_digest = job.resolved.model_sha256(),
          .exact = job.spec().reduction() == v1::REDUCTION_EXACT,
          .continues = job.spec().continues()};
}

}  // namespace ringmaster::worker
