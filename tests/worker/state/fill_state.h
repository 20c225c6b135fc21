// A state for tests in which no two values are equal.
#pragma once

#include <span>

#include "worker/state/state.h"

namespace ringmaster::worker {

// Parameters, slots, moving statistics, and the units that follow.
inline void FillWithDifferentValues(State* state) {
  float next = 0.5F;
  const auto fill = [&](std::span<float> values) {
    for (float& x : values) x = next += 0.25F;
  };
  for (const exact::TensorRange& range : state->layout->blocks().tensors()) {
    fill(state->parameters.span().subspan(range.offset(), range.elements));
    for (Arena<float>& slot : state->slots) {
      fill(slot.span().subspan(range.offset(), range.elements));
    }
  }
  fill(state->moving_means.span());
  fill(state->moving_variances.span());
  state->units.Advance(state->parameters.span());
}

}  // namespace ringmaster::worker
