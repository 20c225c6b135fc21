#include "worker/train/state_exchange.h"

#include <algorithm>
#include <cmath>
#include <functional>
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
    if (!job->weights->master().empty()) {  // the values move, and not the arena
      std::swap(job->state->parameters, fresh->parameters);
      std::ranges::swap_ranges(job->state->parameters.span(), fresh->parameters.span());
    }
    ++job->states_replaced;
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
    job->lost_state = absl::OkStatus();
  }
  job->step_work.Drop();
  job->pulse.set_applied(job->state->step);
  return absl::OkStatus();
}

}  // namespace

namespace {

Status IsAt(uint64_t step, const TrainingJob& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job.state_mu) {
  if (!job.lost_state.ok()) return FailedPrecondition("{}", Message(job.lost_state));
  const uint64_t held = job.state->step;
  if (step == held) return absl::OkStatus();
  if (step < held) {
    return FailedPrecondition("the state of step {} is gone, this worker holds that of {}", step,
                              held);
  }
  return Error(absl::StatusCode::kUnavailable,
               "the state of step {} is not there yet, this worker holds that of {}", step, held);
}

// The state of a job, piece by piece, each under state_mu: an update comes between two of them, or
// a replacement, and then there are no more.
class HeldState : public StateSource {
 public:
  [[nodiscard]] static StatusOr<std::unique_ptr<StateSource>> Open(TrainingJob* job,
                                                                   uint64_t step) {
    MutexLock lock(job->state_mu);
    RING_RETURN_IF_ERROR(IsAt(step, *job));
    // Once, however many fetch it: each hashes what came to it, too.
    const std::pair<uint64_t, uint64_t> offered{step, job->states_replaced};
    if (job->offered_step != offered) {
      RING_RETURN_IF_ERROR(CheckState(job, &OneAfterAnother));
      job->offered_step = offered;
    }
    RING_ASSIGN_OR_RETURN(StateReader reader, StateReader::Create(*job->state));
    const StateFacts facts{.step = step,
                           .digest = job->state->digest,
                           .bytes = reader.bytes(),
                           .validation = job->newest_validation,
                           .test = job->newest_test};
    return std::unique_ptr<StateSource>(
        new HeldState(job, facts, std::move(reader), job->states_replaced));
  }
  [[nodiscard]] const StateFacts& facts() const override { return facts_; }
  Status Read(uint64_t offset, std::span<uint8_t> to) override {
    MutexLock lock(job_->state_mu);
    RING_RETURN_IF_ERROR(IsAt(facts_.step, *job_));
    if (job_->states_replaced != replaced_) {
      return FailedPrecondition("the state of step {} was replaced while it was read", facts_.step);
    }
    reader_.Read(offset, to);
    return absl::OkStatus();
  }

 private:
  HeldState(TrainingJob* job, StateFacts facts, StateReader reader, uint64_t replaced)
      : job_(job), facts_(std::move(facts)), reader_(std::move(reader)), replaced_(replaced) {}

  TrainingJob* const job_;
  const StateFacts facts_;
  const StateReader reader_;
  const uint64_t replaced_;  // job->states_replaced
};

}  // namespace

StatusOr<std::unique_ptr<StateSource>> OpenState(TrainingJob* job, uint64_t step) {
  return HeldState::Open(job, step);
}

std::unique_ptr<IncomingState> ExpectState(const TrainingJob& job) {
  return std::make_unique<IncomingState>(EmptyState(job));
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

Status AdoptState(IncomingState* incoming, const Sha256Digest& digest, TrainingJob* job) {
  const StateFacts& facts = incoming->facts();
  RING_RETURN_IF_ERROR(CheckEvaluation(facts.validation, *job->layout));
  RING_RETURN_IF_ERROR(CheckEvaluation(facts.test, *job->layout));
  if (facts.digest != digest) {
    return DataLoss("the state of step {} that arrived has digest {}, expected {}", facts.step,
                    Hex(facts.digest), Hex(digest));
  }
  RING_ASSIGN_OR_RETURN(
      State fresh, incoming->Finish([job](size_t count, const std::function<void(size_t)>& work) {
        job->cores->ForEach(count, work);
      }));
  RING_RETURN_IF_ERROR(Replace(std::move(fresh), {facts.validation, facts.test}, job));
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
  ManifestFacts facts = {.step = job.state->step,
                         .digest = job.state->digest,
                         .result_digest = job::ResultDigest(job.spec()),
                         .model_digest = job.resolved.model_sha256(),
                         .exact = job.spec().reduction() == v1::REDUCTION_EXACT,
                         .continues = job.spec().continues()};
  for (const v1::ClassMap& map : job.spec().class_maps()) {
    const bool used =
        map.step() < facts.step || (map.step() == facts.step && map.before_evaluation());
    if (used) *facts.class_maps.Add() = map;
  }
  return facts;
}

}  // namespace ringmaster::worker
