#include "worker/train/state_exchange.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "common/job/resolve.h"
#include "worker/state/watch.h"
#include "worker/train/follower.h"
#include "worker/train/state_check.h"

namespace ringmaster::worker {
namespace {

// What is known of the past of a state.
struct Past {
  std::optional<Evaluation> validation, test;
};

Status Swap(State* fresh, TrainingJob* job) {
  {
    MutexLock lock(job->state_mu);
    RING_RETURN_IF_ERROR(job->BringToHost());
    job->ExchangeState(fresh);
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
  if (job.follower != nullptr) {
    return Error(absl::StatusCode::kUnavailable, "the state of step {} is only on its way here",
                 held);
  }
  if (step == held) return absl::OkStatus();
  if (step < held) {
    return FailedPrecondition("the state of step {} is gone, this worker holds that of {}", step,
                              held);
  }
  return Error(absl::StatusCode::kUnavailable,
               "the state of step {} is not there yet, this worker holds that of {}", step, held);
}

// The state of a job, piece by piece, each under state_mu: an update comes between two of them, or
// a replacement, and then there are no more; who follows gets those of the updated state.
class HeldState : public StateSource {
 public:
  [[nodiscard]] static StatusOr<std::unique_ptr<StateSource>> Open(TrainingJob* job, uint64_t step,
                                                                   Follows follows) {
    MutexLock lock(job->state_mu);
    RING_RETURN_IF_ERROR(IsAt(step, *job));
    if (follows == Follows::kYes) {
      // Not hashed: each update hashes what it reads, and who gets it what came.
      if (Follower::Can(*job)) return Make(job, follows);
      return FailedPrecondition(
          "this job cannot be followed here: its state is to be fetched whole");
    }
    // Once, however many fetch it: each hashes what came to it, too.
    const std::pair<uint64_t, uint64_t> offered{step, job->states_replaced};
    if (job->offered_step != offered) {
      RING_RETURN_IF_ERROR(CheckState(job, &OneAfterAnother));
      job->offered_step = offered;
    }
    return Make(job, follows);
  }
  [[nodiscard]] const StateFacts& facts() const override { return facts_; }
  [[nodiscard]] uint64_t PieceEnd(uint64_t offset) const override {
    return reader_.PieceEnd(offset);
  }
  StatusOr<uint64_t> Read(uint64_t offset, std::span<uint8_t> to) override {
    MutexLock lock(job_->state_mu);
    const uint64_t now = job_->state->step;
    RING_RETURN_IF_ERROR(IsAt(follows_ == Follows::kYes ? now : facts_.step, *job_));
    if (job_->states_replaced != replaced_) {
      return FailedPrecondition("the state of step {} was replaced while it was read", facts_.step);
    }
    if (offset <= reader_.last_numbers()) step_ = now;
    if (offset == reader_.last_numbers()) {
      RING_RETURN_IF_ERROR(reader_.TakeLastNumbers(*job_->state));
    }
    reader_.Read(offset, to);
    return step_;
  }

 private:
  HeldState(TrainingJob* job, Follows follows, StateFacts facts, StateReader reader)
      : job_(job),
        follows_(follows),
        facts_(std::move(facts)),
        reader_(std::move(reader)),
        replaced_(job->states_replaced),
        step_(facts_.step) {}

  // Under state_mu.
  [[nodiscard]] static StatusOr<std::unique_ptr<StateSource>> Make(TrainingJob* job,
                                                                   Follows follows) {
    RING_ASSIGN_OR_RETURN(StateReader reader,
                          StateReader::Create(*job->state, job->options.piece_bytes));
    const StateFacts facts{.step = job->state->step,
                           .digest = job->state->digest,
                           .bytes = reader.bytes(),
                           .validation = job->newest_validation,
                           .test = job->newest_test};
    return std::unique_ptr<StateSource>(new HeldState(job, follows, facts, std::move(reader)));
  }

  TrainingJob* const job_;
  const Follows follows_;
  const StateFacts facts_;
  StateReader reader_;
  const uint64_t replaced_;  // job->states_replaced
  uint64_t step_;            // that is read; of the numbers at the end the one that they began with
};

}  // namespace

StatusOr<std::unique_ptr<StateSource>> OpenState(TrainingJob* job, uint64_t step, Follows follows) {
  return HeldState::Open(job, step, follows);
}

State EmptyState(const TrainingJob& job) {
  return {job.layout, static_cast<int>(job.spec().precision_bits()), NothingWatched(job.spec()),
          PredictedOf(job.spec())};
}

namespace {

Status CheckEvaluation(const std::optional<Evaluation>& evaluation, uint64_t step,
                       const StateLayout& layout) {
  if (!evaluation) return absl::OkStatus();
  if (evaluation->step > step) {
    return DataLoss("a peer's evaluation is of step {}, its state of step {}", evaluation->step,
                    step);
  }
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

Status CheckEvaluations(const StateFacts& facts, const StateLayout& layout) {
  RING_RETURN_IF_ERROR(CheckEvaluation(facts.validation, facts.step, layout));
  return CheckEvaluation(facts.test, facts.step, layout);
}

Status CheckFrozen(const State& arrived, const State& own, const TrainingJob& job) {
  // Who lacks the job's beginning, or its predecessor's end, has them from others alone.
  if (job.lacks_init || job.spec().has_continues()) return absl::OkStatus();
  const std::span<const float> theirs = arrived.frozen.span(), ours = own.frozen.span();
  if (theirs.size_bytes() == 0 ||
      std::memcmp(theirs.data(), ours.data(), theirs.size_bytes()) == 0) {
    return absl::OkStatus();
  }
  return DataLoss("frozen parameters of a state of step {} are not those that the job begins with",
                  arrived.step);
}

Status AdoptState(IncomingState* incoming, const Sha256Digest& digest, TrainingJob* job) {
  const StateFacts& facts = incoming->facts();
  RING_RETURN_IF_ERROR(CheckEvaluations(facts, *job->layout));
  if (facts.digest != digest) {
    return DataLoss("the state of step {} that arrived has digest {}, expected {}", facts.step,
                    Hex(facts.digest), Hex(digest));
  }
  RING_ASSIGN_OR_RETURN(
      State fresh, incoming->Finish([job](size_t count, const std::function<void(size_t)>& work) {
        job->cores->ForEach(count, work);
      }));
  RING_RETURN_IF_ERROR(CheckFrozen(fresh, *job->state, *job));
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
