// Batch normalization over all axes but the last: training, its gradient, and inference.
//   y = gamma (x - mean) / sqrt(variance + epsilon) + beta, variance biased (divided by the count)
// With activation kRelu y is clamped at 0 and the gradient masks dy by y > 0, with kRelu6 at 0 and
// 6 and by 0 < y < 6, y computed once more as the same kernel rounded it. With kSwish y is
// swish(z), z what y is above, and the gradient multiplies dy by the slope there, s + z s (1 - s)
// with s = sigmoid(z), z computed once more. Unlike what a batch_norm hands to a swish that is a
// node of its own, z is nowhere rounded to x's type. Scales, offsets and statistics are float32;
// gamma and beta are operands where `scale` and `center` say so, else 1 and 0.
#pragma once

#include <tuple>

#include "common/graph/ops/op.h"

namespace ringmaster::graph {

struct BatchNormAttributes {
  double epsilon = 1e-3;
  Activation activation = Activation::kNone;  // of the gradient: that of the forward op
  double momentum = 0.99;                     // of the moving statistics; no kernel reads it
  bool scale = true;
  bool center = true;
  // Frozen: moving statistics are read in training, too, and stay as they are. A program has
  // batch_norm_inference then.
  bool inference = false;
  // y = activation(... + residual): an add that a pass folded in. There are gamma and beta then.
  bool residual = false;

  static constexpr auto Fields() {
    return std::tuple(
        Field{"epsilon", &BatchNormAttributes::epsilon, "added to the variance"},
        Field{"momentum", &BatchNormAttributes::momentum, "what moving statistics keep each step"},
        Field{"scale", &BatchNormAttributes::scale, "there is a gamma"},
        Field{"center", &BatchNormAttributes::center, "there is a beta"},
        Field{"inference", &BatchNormAttributes::inference, "moving statistics, always"});
  }
};

// x(..,C) [gamma(C)] [beta(C)] [residual(..,C)] -> y mean(C) variance(C)
struct BatchNorm : BatchNormAttributes {
  static constexpr OpTraits kTraits = {.name = "batch_norm",
                                       .keras = "BatchNormalization",
                                       .float32_inputs = 0b110,
                                       .recompute = Recompute::kByStatistics};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// x dy mean variance [gamma] [beta] -> dx [dgamma] [dbeta]; beta if and only if there is one and
// an activation
//
// With a residual, which there is with kRelu only, y is read instead of computed once more, and
// what of dy passes goes to the residual, too; dy may come as two addends:
//   x dy mean variance gamma beta y [more_dy] -> dx dgamma dbeta dresidual
struct BatchNormGradient : BatchNormAttributes {
  static constexpr OpTraits kTraits = {.name = "batch_norm_gradient",
                                       .float32_inputs = 0b111100,
                                       .storage = Storage::kInPlace,  // dx where dy lay
                                       .storage_input = 1,
                                       .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

// x [gamma] [beta] moving_mean moving_variance [residual] -> y
struct BatchNormInference : BatchNormAttributes {
  static constexpr OpTraits kTraits = {
      .name = "batch_norm_inference", .float32_inputs = 0b11110, .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  // Of x alone: the others are frozen where one is asked for.
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// dy [gamma] moving_variance -> dx
struct BatchNormInferenceGradient : BatchNormAttributes {
  static constexpr OpTraits kTraits = {
      .name = "batch_norm_inference_gradient", .float32_inputs = 0b110, .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

}  // namespace ringmaster::graph
