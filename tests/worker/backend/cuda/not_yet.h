// Ops, and forms of ops, that have no CUDA kernel yet: the only list. Binding a case of them says
// UNIMPLEMENTED (emulated_ops_test.cc), and the sweeps of this backend leave it out. Thread-safe
// (free functions).
#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

#include "tests/common/graph/cases/table.h"

namespace ringmaster::testing {

inline constexpr std::string_view kNotYetOnCuda[] = {
    "batch_norm_inference_gradient",
    "binary_accuracy",
    "elu",
    "elu_gradient",
    "gelu",
    "gelu_gradient",
    "group_norm",
    "group_norm_gradient",
    "hard_sigmoid",
    "hard_sigmoid_gradient",
    "hard_swish",
    "hard_swish_gradient",
    "huber",
    "huber_gradient",
    "layer_norm",
    "layer_norm_gradient",
    "leaky_relu",
    "leaky_relu_gradient",
    "mean_absolute_error",
    "mean_absolute_error_gradient",
    "mean_squared_error",
    "mean_squared_error_gradient",
    "relu6",
    "relu6_gradient",
    "sigmoid",
    "sigmoid_gradient",
    "sigmoid_cross_entropy",
    "sigmoid_cross_entropy_gradient",
    "softmax",
    "softmax_gradient",
    "softplus",
    "softplus_gradient",
    "swish",
    "swish_gradient",
    "tanh",
    "tanh_gradient",
};

inline bool NotYetOnCuda(const graph::Kind& kind) {
  return std::find(std::begin(kNotYetOnCuda), std::end(kNotYetOnCuda),
                   graph::TraitsOf(kind).name) != std::end(kNotYetOnCuda);
}

inline bool NotYetOnCuda(const graph::OpCase& test) {
  // A node only for its attributes.
  const graph::Node node = {"", test.kind, {}};
  if (const auto* norm = node.attributes<graph::BatchNormAttributes>()) {
    return !norm->scale || !norm->center || NotYetOnCuda(test.kind);
  }
  if (const auto* conv2d = node.attributes<graph::Conv2dAttributes>()) {
    return conv2d->groups != 1 || conv2d->dilations != graph::Conv2dAttributes().dilations;
  }
  return NotYetOnCuda(test.kind);
}

}  // namespace ringmaster::testing
