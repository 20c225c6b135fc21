// What one update makes of one element, for every backend: float32, each operation correctly
// rounded, in this order, with the scalars that Optimizer::formula prepares. For host code and GPU
// kernels; nothing is included that a compiler of kernels cannot read. Values, thread-safe.
//
// A formula changes a parameter and its kSlots slots, in the order of Optimizer::slot_names().
#pragma once

#include "common/arithmetic.h"
#include "common/host_device.h"

namespace ringmaster::graph {

struct PlainSgdFormula {
  static constexpr int kSlots = 0;
  float rate;

  RING_HOST_DEVICE void operator()(float gradient, float& parameter) const {
    parameter -= rate * gradient;
  }
};

struct MomentumSgdFormula {
  static constexpr int kSlots = 1;
  float rate;
  float momentum;
  bool nesterov;

  RING_HOST_DEVICE void operator()(float gradient, float& parameter, float& velocity) const {
    const float step = rate * gradient;
    velocity = momentum * velocity - step;
    parameter += nesterov ? momentum * velocity - step : velocity;
  }
};

// Keras' formula: alpha = rate * sqrt(1 - beta_2^t) / (1 - beta_1^t); rest = 1 - beta.
struct AdamFormula {
  static constexpr int kSlots = 2;
  float alpha;
  float rest_1;
  float rest_2;
  float epsilon;

  RING_HOST_DEVICE void operator()(float gradient, float& parameter, float& mean,
                                   float& square) const {
    mean += (gradient - mean) * rest_1;
    square += (gradient * gradient - square) * rest_2;
    parameter -= mean * alpha / (SquareRoot(square) + epsilon);
  }
};

}  // namespace ringmaster::graph
