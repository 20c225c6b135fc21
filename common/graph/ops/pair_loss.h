// The family of losses and measures over pairs: the sum over samples of the mean of f(prediction,
// target) over a sample's elements. One of them is one struct here and a row in the list; its
// gradient op is PairLossGradient of it, and a measure, which has no slope, has none. Shape rules,
// gradient rules and references are made of the formulas (op_table.cc), kernels by each
// backend from its number type R, as in unary.h. Everything is float32; targets are data: no
// gradient flows into them. Constants; thread-safe.
#pragma once

#include <cmath>
#include <tuple>

#include "common/graph/ops/unary.h"
#include "common/numeric/host_device.h"

namespace ringmaster::graph {

// -t log(sigmoid(p)) - (1 - t) log(1 - sigmoid(p)), without overflow: p are logits, t lies in 0..1
// and is drawn to 1/2 by the smoothing.
struct SigmoidCrossEntropy {
  double label_smoothing = 0;
  static constexpr auto Fields() {
    return std::tuple(Field{"label_smoothing", &SigmoidCrossEntropy::label_smoothing,
                            "share of each target that becomes 1/2"});
  }
  [[nodiscard]] Status Check() const {
    if (label_smoothing >= 0 && label_smoothing < 1) return absl::OkStatus();
    return InvalidArgument("label_smoothing must be at least 0 and under 1, got {}",
                           label_smoothing);
  }
  static constexpr OpTraits kTraits = {.name = "sigmoid_cross_entropy",
                                       .keras = "BinaryCrossentropy",
                                       .float32_inputs = 0b11,
                                       .recompute = Recompute::kNever};
  template <typename R>
  RING_HOST_DEVICE R Value(R p, R t) const {
    return Select(p <= R(0), R(0), p) - p * Smooth(t) + Log1p(Exp(R(0) - Abs(p)));
  }
  template <typename R>
  RING_HOST_DEVICE R Slope(R p, R t) const {
    return Logistic(p) - Smooth(t);
  }

 private:
  template <typename R>
  RING_HOST_DEVICE R Smooth(R t) const {
    return t * R(1 - label_smoothing) + R(label_smoothing / 2);
  }
};

// (p - t)^2
struct MeanSquaredError {
  static constexpr OpTraits kTraits = {.name = "mean_squared_error",
                                       .keras = "MeanSquaredError",
                                       .float32_inputs = 0b11,
                                       .recompute = Recompute::kNever};
  template <typename R>
  RING_HOST_DEVICE R Value(R p, R t) const {
    return (p - t) * (p - t);
  }
  template <typename R>
  RING_HOST_DEVICE R Slope(R p, R t) const {
    return R(2) * (p - t);
  }
};

// |p - t|, of slope 0 at 0
struct MeanAbsoluteError {
  static constexpr OpTraits kTraits = {.name = "mean_absolute_error",
                                       .keras = "MeanAbsoluteError",
                                       .float32_inputs = 0b11,
                                       .recompute = Recompute::kNever};
  template <typename R>
  RING_HOST_DEVICE R Value(R p, R t) const {
    return Abs(p - t);
  }
  template <typename R>
  RING_HOST_DEVICE R Slope(R p, R t) const {
    return Select(p <= t, Select(p >= t, R(0), R(-1)), R(1));
  }
};

// d^2 / 2 up to |d| = delta, then delta (|d| - delta / 2), d = p - t (Huber, "Robust estimation of
// a location parameter", 1964)
struct Huber {
  double delta = 1;
  static constexpr auto Fields() {
    return std::tuple(Field{"delta", &Huber::delta, "where the parabola becomes a line"});
  }
  [[nodiscard]] Status Check() const {
    if (delta > 0 && std::isfinite(delta)) return absl::OkStatus();
    return InvalidArgument("delta must be a number above 0, got {}", delta);
  }
  static constexpr OpTraits kTraits = {
      .name = "huber", .keras = "Huber", .float32_inputs = 0b11, .recompute = Recompute::kNever};
  template <typename R>
  RING_HOST_DEVICE R Value(R p, R t) const {
    const R d = Abs(p - t);
    return Select(d <= R(delta), R(0.5) * d * d, R(delta) * (d - R(delta / 2)));
  }
  template <typename R>
  RING_HOST_DEVICE R Slope(R p, R t) const {
    const R d = p - t;
    return Select(d <= R(-delta), R(-delta), Select(d >= R(delta), R(delta), d));
  }
};

// 1 where p > threshold says what t > 1/2 says, else 0: p are logits, or whatever the threshold
// parts. A measure.
struct BinaryAccuracy {
  double threshold = 0;
  static constexpr auto Fields() {
    return std::tuple(
        Field{"threshold", &BinaryAccuracy::threshold, "what a prediction of yes is above"});
  }
  static constexpr OpTraits kTraits = {.name = "binary_accuracy",
                                       .keras = "BinaryAccuracy",
                                       .float32_inputs = 0b11,
                                       .recompute = Recompute::kNever};
  template <typename R>
  RING_HOST_DEVICE R Value(R p, R t) const {
    return R(1) - Abs(Yes(p, threshold) - Yes(t, 0.5));
  }

 private:
  template <typename R>
  RING_HOST_DEVICE static R Yes(R x, double threshold) {
    return Select(x <= R(threshold), R(0), R(1));
  }
};

template <typename Op>
concept PairLossGradientOp = requires {
  typename Op::LossOf;
};
template <typename Op>
concept PairLossOp = requires(const Op& op) {
  op.Value(0.0, 0.0);
}
&&!PairLossGradientOp<Op>;
template <typename Op>
concept PairLossWithSlope = PairLossOp<Op> && requires(const Op& op) {
  op.Slope(0.0, 0.0);
};

// predictions targets seed() -> dpredictions, seed being the gradient that flows into the sum
template <PairLossWithSlope Op>
struct PairLossGradient : Op {
  using LossOf = Op;
  static constexpr OpTraits kTraits = {
      .name = GradientName<Op>::kText.data(), .float32_inputs = 0b111, .internal = true};
};

}  // namespace ringmaster::graph
