#include "worker/train/state_check.h"

#include <bit>
#include <span>

#include "common/failpoint.h"
#include "common/log.h"
#include "worker/backend/failure.h"

namespace ringmaster::worker {
namespace {

// The lowest bit of the exponent: a value that no update would give, but a number.
void FlipBitOf(std::span<float> values) {
  if (values.empty()) return;
  values.front() = std::bit_cast<float>(std::bit_cast<uint32_t>(values.front()) ^ 0x00800000);
}

}  // namespace

Status LoseState(TrainingJob* job, const std::string& what) {
  job->lost_state = WithFailure(
      v1::FAILURE_CODE_STATE_DIFFERS,
      DataLoss("the state of step {} is not what was written: {} differs. A bit of this worker's "
               "memory changed: test the memory of this host",
               job->state->step, what));
  spdlog::error("state lost: job={} {}", job->id.value(), Message(job->lost_state));
  return job->lost_state;
}

Status CheckState(TrainingJob* job, const ForEachPiece& for_each) {
  RING_RETURN_IF_ERROR(job->lost_state);
  RING_RETURN_IF_ERROR(job->BringToHost());
  const State& state = *job->state;
  const std::string what = NameDifference(*state.layout, state.written, HashState(state, for_each));
  return what.empty() ? absl::OkStatus() : LoseState(job, what);
}

Status CheckStateOnCores(TrainingJob* job) {
  MutexLock lock(job->state_mu);
  return CheckState(job, [job](size_t count, const std::function<void(size_t)>& work) {
    job->cores->ForEach(count, work);
  });
}

void FlipForTests(TrainingJob* job) {
  const std::string part = FlipAt("state", job->state->step);
  if (part.empty() || job->device != nullptr) return;
  MutexLock lock(job->state_mu);
  State& state = *job->state;
  if (part == "parameter") FlipBitOf(state.parameters.span());
  if (part == "slot" && !state.slots.empty()) FlipBitOf(state.slots.front().span());
  if (part == "moving_mean") FlipBitOf(state.moving_means.span());
}

}  // namespace ringmaster::worker
