// What happens to an element around every rule: its gradient is clipped and gets weight decay, its
// weight loses some by itself, and the average follows it. For host code and GPU kernels; nothing
// is included that a compiler of kernels cannot read. Values, thread-safe. What is off is branched
// over, so that it changes no bit.
#pragma once

#include <cstdint>

#include "common/numeric/host_device.h"

namespace ringmaster::graph {

// Of one tensor in one update, each number rounded to float32.
struct Around {
  enum class Average : uint8_t { kNone, kCopy, kFollow };

  float limit = 0;  // of a gradient's magnitude; 0: none
  float scale = 1;  // of a gradient, for its norm
  float l2 = 0;     // of the weight, added to the gradient
  float decay = 0;  // of the weight, taken from it: the rate is in it
  float added = 0;  // of the weight, in its average: 1 - decay of `ema`
  Average average = Average::kNone;

  // Nothing is on.
  [[nodiscard]] bool plain() const {
    return limit == 0 && scale == 1 && l2 == 0 && decay == 0 && average == Average::kNone;
  }

  RING_HOST_DEVICE float Limited(float gradient) const {
    if (limit == 0) return gradient;
    return gradient > limit ? limit : gradient < -limit ? -limit : gradient;
  }

  // What the rule gets.
  RING_HOST_DEVICE float Gradient(float gradient, float weight) const {
    gradient = Limited(gradient);
    if (scale != 1) gradient *= scale;
    if (l2 != 0) gradient += l2 * weight;
    return gradient;
  }

  RING_HOST_DEVICE float Decayed(float weight) const {
    return decay == 0 ? weight : weight - decay * weight;
  }

  // The average, once the weight is new. Not with kNone.
  RING_HOST_DEVICE float Averaged(float weight, float average_before) const {
    if (average == Average::kCopy) return weight;
    return average_before + (weight - average_before) * added;
  }
};

}  // namespace ringmaster::graph
