// What norms make of an update: gradients are clipped by them, and rates of LARS and LAMB follow
// them. For host code and GPU kernels; nothing is included that a compiler of kernels cannot read.
// Values, thread-safe.
#pragma once

#include "common/graph/update/rules/rule.h"
#include "common/numeric/arithmetic.h"
#include "common/numeric/host_device.h"

namespace ringmaster::graph {

// Squares of a tensor's norms. Each is a float64 sum in the order of common/numeric/arithmetic.h:
// lanes of a block, a tree over the blocks.
struct TensorSquares {
  double gradient = 0;  // behind Around::Limited, before it is scaled
  double weight = 0;    // before the update
  double step = 0;      // of rules that adapt by it
};

// What norms make of one tensor's step.
struct NormFactors {
  double gradient = 1;  // its gradient is multiplied by it: clipping
  double rate = 1;      // the rate likewise: the ratio of LARS and LAMB
};

// What a tensor has to do with norms.
struct TensorNorms {
  double decay = 0;     // of its weights
  bool adapts = false;  // its rate follows its norms, where the rule has it so
  bool adds = false;    // its sum is added as it is: no part of the norm of all gradients
};

// Of a job.
struct NormRule {
  float limit = 0;         // Around::limit of every gradient
  double global_norm = 0;  // at most, of all gradients together; 0: not clipped
  double tensor_norm = 0;  // likewise, of each tensor's
  Adapts adapts = Adapts::kNot;
  Trust trust;  // where it adapts

  // Which squares an update needs.
  [[nodiscard]] bool clips() const { return global_norm != 0 || tensor_norm != 0; }
  [[nodiscard]] bool needs_gradients() const { return clips() || adapts == Adapts::kByGradient; }
  [[nodiscard]] bool needs_weights() const { return adapts != Adapts::kNot; }
  [[nodiscard]] bool needs_steps() const { return adapts == Adapts::kByStep; }

  // Of a tensor. `all`: the squares of all gradients, where these are clipped together.
  RING_HOST_DEVICE NormFactors FactorsOf(const TensorSquares& squares, const TensorNorms& tensor,
                                         double all) const {
    NormFactors factors;
    if (global_norm != 0) factors.gradient = Bounded(SquareRoot(all), global_norm);
    if (tensor_norm != 0) factors.gradient = Bounded(SquareRoot(squares.gradient), tensor_norm);
    if (adapts == Adapts::kNot || !tensor.adapts) return factors;
    const double weight = SquareRoot(squares.weight);
    const double other = adapts == Adapts::kByStep
                             ? SquareRoot(squares.step)
                             : SquareRoot(squares.gradient) * factors.gradient;
    if (weight != 0 && other != 0) factors.rate = trust.Ratio(weight, other, tensor.decay);
    return factors;
  }

 private:
  RING_HOST_DEVICE static double Bounded(double norm, double most) {
    return norm > most ? most / norm : 1;
  }
};

}  // namespace ringmaster::graph
