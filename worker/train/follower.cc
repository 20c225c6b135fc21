#include "worker/train/follower.h"

#include <chrono>
#include <utility>

#include "common/job/resolve.h"
#include "common/log.h"
#include "worker/state/watch.h"
#include "worker/train/state_exchange.h"
#include "worker/train/training_job.h"

namespace ringmaster::worker {
namespace {

// Between two looks at whether a wait is abandoned; a Nudge makes it look at once.
constexpr std::chrono::milliseconds kLook{100};

}  // namespace

bool Follower::Can(const TrainingJob& job) {
  return job.exact_sums() && Trains(job.spec()) && job.device == nullptr &&
         job.optimizer != nullptr && !job.optimizer->norms().needs_weights();
}

Follower::Follower(TrainingJob* job, State room, std::string source)
    : job_(job),
      room_(std::move(room)),
      writer_(&*room_, job->options.piece_bytes),
      source_(std::move(source)) {}

Follower::~Follower() { GiveUp(); }

Status Follower::Begin(const StateFacts& facts) {
  MutexLock lock(job_->state_mu);
  if (stage_ == Stage::kOver) return absl::CancelledError("nobody waits for the state");
  if (stage_ != Stage::kFetches || numbers_here_) return Internal("a second state for one job");
  return writer_.Begin(facts);
}

Status Follower::Write(uint64_t offset, uint64_t step, std::span<const uint8_t> from) {
  const uint64_t end = offset + from.size();
  MutexLock lock(job_->state_mu);
  if (offset < writer_.first_numbers_end()) {
    if (step != writer_.facts().step) {
      return DataLoss("the numbers before a state are of step {}, expected {}", step,
                      writer_.facts().step);
    }
    writer_.Write(offset, from);
    newest_ = step;
    numbers_here_ = end >= writer_.first_numbers_end();
    changed_.NotifyAll();
    return absl::OkStatus();
  }
  const uint64_t at = stage_ == Stage::kFollows ? job_->state->step : writer_.facts().step;
  if (step < newest_ || step > at + 1) {  // no member of a ring is further ahead
    return DataLoss("bytes of step {} came behind some of step {}, at step {}", step, newest_, at);
  }
  newest_ = step;
  changed_.NotifyAll();
  WaitFor(changed_, job_->state_mu, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return stage_ == Stage::kOver || (stage_ == Stage::kFollows && job_->state->step >= step);
  });
  if (stage_ == Stage::kOver) return absl::CancelledError("nobody waits for the state");
  if (job_->state->step != step) {
    return Internal("bytes of step {} came too late, the job is at step {}", step,
                    job_->state->step);
  }
  writer_.Write(offset, from);
  complete_ = end == writer_.facts().bytes;
  if (complete_) changed_.NotifyAll();
  return absl::OkStatus();
}

void Follower::End(const Status& status) {
  MutexLock lock(job_->state_mu);
  ended_ = status;
  changed_.NotifyAll();
}

void Follower::Nudge() {
  MutexLock lock(job_->state_mu);
  changed_.NotifyAll();
}

bool Follower::Await(const std::function<bool()>& abandoned, const std::function<bool()>& done) {
  const auto over = [&] { return done() || ended_.has_value() || abandoned(); };
  while (!changed_.WaitUntil(job_->state_mu, std::chrono::steady_clock::now() + kLook, over)) {
  }
  return done();
}

Status Follower::TakeUp(const Sha256Digest& digest, const std::function<bool()>& abandoned) {
  MutexLock lock(job_->state_mu);
  if (!Await(abandoned, [this] { return numbers_here_; })) {
    return ended_ && !ended_->ok() ? *ended_ : absl::CancelledError("nobody waits for the state");
  }
  const StateFacts& facts = writer_.facts();
  RING_RETURN_IF_ERROR(CheckEvaluations(facts, *job_->layout));
  if (facts.digest != digest) {
    return DataLoss("the state of step {} that arrives has digest {}, expected {}", facts.step,
                    Hex(facts.digest), Hex(digest));
  }
  RING_RETURN_IF_ERROR(writer_.SetFirstNumbers());
  if (room_->step != facts.step) {
    return DataLoss("the numbers of step {} arrived, expected {}", room_->step, facts.step);
  }
  job_->ExchangeState(&*room_);
  former_validation_ = std::exchange(job_->newest_validation, facts.validation);
  former_test_ = std::exchange(job_->newest_test, facts.test);
  writer_.MoveTo(job_->state.get());
  stage_ = Stage::kFollows;
  job_->follower = this;
  job_->step_work.Drop();
  job_->pulse.set_applied(job_->state->step);
  changed_.NotifyAll();
  return absl::OkStatus();
}

StatusOr<bool> Follower::KeepUp(Awaits awaits, const std::function<bool()>& abandoned) {
  {
    MutexLock lock(job_->state_mu);
    const uint64_t step = job_->state->step;
    const auto may_go_on = [&] {
      return complete_ || awaits == Awaits::kNothing ||
             (awaits == Awaits::kNextState && newest_ > step);
    };
    if (!Await(abandoned, may_go_on)) {
      if (!ended_ || ended_->ok()) return absl::CancelledError("the run is over");
      failed_ = true;
      return *ended_;
    }
    if (!complete_) return false;
    const Status whole = BecomeWhole();
    failed_ = !whole.ok();
    RING_RETURN_IF_ERROR(whole);
  }
  RING_RETURN_IF_ERROR(job_->RefreshWeights());
  job_->checkpoints.Rewind();
  return true;
}

Status Follower::BecomeWhole() {
  State& state = *job_->state;
  const uint64_t step = state.step;
  RING_RETURN_IF_ERROR(writer_.SetLastNumbers());
  if (state.step != step) {
    state.step = step;
    return DataLoss("the numbers behind a state are of step {}, it is that of {}", state.step,
                    step);
  }
  RING_RETURN_IF_ERROR(
      CheckChain(&state, [this](size_t count, const std::function<void(size_t)>& work) {
        job_->cores->ForEach(count, work);
      }));
  RING_RETURN_IF_ERROR(CheckFrozen(state, *room_, *job_));
  // The source may have sent its last numbers before it looked at what this state was evaluated to.
  (void)LookAt(job_->spec(), job_->newest_validation, job_->newest_test, &state);
  stage_ = Stage::kWhole;
  job_->follower = nullptr;
  ++job_->states_replaced;
  room_.reset();
  return absl::OkStatus();
}

void Follower::GiveUp() {
  MutexLock lock(job_->state_mu);
  if (stage_ == Stage::kFollows) {
    job_->ExchangeState(&*room_);
    job_->newest_validation = former_validation_;
    job_->newest_test = former_test_;
    job_->follower = nullptr;
    job_->weights_stale = true;
    job_->step_work.Drop();
    job_->pulse.set_applied(job_->state->step);
  }
  if (stage_ != Stage::kWhole) stage_ = Stage::kOver;
  changed_.NotifyAll();
}

}  // namespace ringmaster::worker
