#include "worker/state/device_copy.h"

#include <span>
#include <vector>

namespace ringmaster::worker {

Status DeviceCopy::Load(const State& state) { return Show(state, state.parameters.span()); }

Status DeviceCopy::Show(const State& state, std::span<const float> parameters) {
  std::vector<std::span<const float>> slots;
  for (const Arena<float>& slot : state.slots) slots.push_back(slot.span());
  RING_RETURN_IF_ERROR(device_->Load(parameters, slots, state.units.exponents()));
  host_is_behind_ = false;
  return absl::OkStatus();
}

Status DeviceCopy::Store(State* state) {
  if (!host_is_behind_) return absl::OkStatus();
  std::vector<std::span<float>> slots;
  for (Arena<float>& slot : state->slots) slots.push_back(slot.span());
  std::vector<int16_t> exponents(state->units.exponents().size());
  RING_RETURN_IF_ERROR(device_->Store(state->parameters.span(), slots, exponents));
  RING_RETURN_IF_ERROR(state->units.Restore(exponents));
  host_is_behind_ = false;
  return absl::OkStatus();
}

StatusOr<StepHashes> DeviceCopy::Apply(SumSource source, uint64_t update) {
  host_is_behind_ = true;
  return device_->Apply(source, update);
}

StatusOr<StepHashes> DeviceCopy::Skip(SumSource source) {
  host_is_behind_ = true;
  return device_->Skip(source);
}

}  // namespace ringmaster::worker
