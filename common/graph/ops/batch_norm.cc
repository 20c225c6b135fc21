#include "common/graph/ops/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "common/graph/ops/operands.h"

namespace ringmaster::graph {
namespace {

// x, and after it one float32 vector over the channels for each of `names`.
Status CheckBatchNormOperands(std::span<const TensorType> inputs,
                              std::initializer_list<const char*> names) {
  RING_RETURN_IF_ERROR(ExpectFloating("x", inputs[0]));
  if (inputs[0].shape.size() < 2) {
    return InvalidArgument("expected x with at least 2 dimensions, got {}",
                           ToString(inputs[0].shape));
  }
  size_t at = 1;
  for (const char* name : names) {
    RING_RETURN_IF_ERROR(ExpectVector(name, inputs[at++], inputs[0].shape.back()));
  }
  return absl::OkStatus();
}

double InverseDeviation(const ReferenceCall& call, double variance) {
  return 1 / std::sqrt(variance + call.node.attributes<BatchNormAttributes>()->epsilon);
}

bool HasRelu(const ReferenceCall& call) {
  return call.node.attributes<BatchNormAttributes>()->activation == Activation::kRelu;
}

// One channel: y from x by the given statistics.
void Normalize(const ReferenceCall& call, size_t channel, double mean, double variance) {
  const std::span<const double> x = call.inputs[0];
  const std::span<double> y = call.outputs[0];
  const double scale = call.inputs[1][channel] * InverseDeviation(call, variance);
  for (size_t i = channel; i < x.size(); i += call.inputs[1].size()) {
    y[i] = (x[i] - mean) * scale + call.inputs[2][channel];
    if (HasRelu(call)) y[i] = std::max(y[i], 0.0);
  }
}

}  // namespace

// x gamma beta -> y mean variance.
Status BatchNorm::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 3, 3));
  RING_RETURN_IF_ERROR(CheckBatchNormOperands(inputs, {"gamma", "beta"}));
  const Shape channels = {inputs[0].shape.back()};
  *outputs = {{inputs[0].shape, inputs[0].dtype},
              {channels, DType::kFloat32, "mean"},
              {channels, DType::kFloat32, "variance"}};
  return absl::OkStatus();
}

// x gamma mean variance dy [y] -> dx dgamma dbeta; y if and only if the activation is kRelu.
Status BatchNormGradient::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  const auto& attributes = *node.attributes<BatchNormAttributes>();
  const size_t count = attributes.activation == Activation::kRelu ? 6 : 5;
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, count, count));
  RING_RETURN_IF_ERROR(CheckBatchNormOperands(inputs, {"gamma", "mean", "variance"}));
  RING_RETURN_IF_ERROR(ExpectSame("dy", inputs[4], inputs[0]));
  if (count == 6) RING_RETURN_IF_ERROR(ExpectSame("y", inputs[5], inputs[0]));
  const Shape channels = {inputs[0].shape.back()};
  *outputs = {{inputs[0].shape, inputs[0].dtype},
              {channels, DType::kFloat32, "gamma"},
              {channels, DType::kFloat32, "beta"}};
  return absl::OkStatus();
}

// x gamma beta moving_mean moving_variance -> y.
Status BatchNormInference::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 5, 5));
  RING_RETURN_IF_ERROR(
      CheckBatchNormOperands(inputs, {"gamma", "beta", "moving_mean", "moving_variance"}));
  *outputs = {{inputs[0].shape, inputs[0].dtype}};
  return absl::OkStatus();
}

Gradients BatchNorm::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  if (request.output_gradients[1] != kNoValue || request.output_gradients[2] != kNoValue) {
    return InvalidArgument("{}: no gradient flows through the statistics of a batch_norm",
                           node.name);
  }
  const auto& attributes = *node.attributes<BatchNormAttributes>();
  Node gradient = {node.name + "/gradient",
                   BatchNormGradient{attributes},
                   {node.inputs[0], node.inputs[1], node.outputs[1], node.outputs[2],
                    request.output_gradients[0]}};
  if (attributes.activation == Activation::kRelu) {
    gradient.inputs.push_back(node.outputs[0]);
  }
  return AddOp(request.graph, std::move(gradient));
}

void BatchNorm::Reference(const ReferenceCall& call) {
  const std::span<const double> x = call.inputs[0];
  const size_t channels = call.inputs[1].size();
  const double count = static_cast<double>(x.size() / channels);
  for (size_t c = 0; c < channels; ++c) {
    double sum = 0;
    for (size_t i = c; i < x.size(); i += channels) sum += x[i];
    const double mean = sum / count;
    double squares = 0;
    for (size_t i = c; i < x.size(); i += channels) squares += (x[i] - mean) * (x[i] - mean);
    const double variance = squares / count;
    call.outputs[1][c] = mean;
    call.outputs[2][c] = variance;
    Normalize(call, c, mean, variance);
  }
}

void BatchNormInference::Reference(const ReferenceCall& call) {
  for (size_t c = 0; c < call.inputs[1].size(); ++c) {
    Normalize(call, c, call.inputs[3][c], call.inputs[4][c]);
  }
}

// dx = gamma r (dy - mean(dy) - n mean(dy n)), n the normalized x, r = 1 / sqrt(variance + epsilon)
// (Ioffe and Szegedy, "Batch normalization", 2015, section 3).
void BatchNormGradient::Reference(const ReferenceCall& call) {
  const std::span<const double> x = call.inputs[0];
  const size_t channels = call.inputs[1].size();
  const double count = static_cast<double>(x.size() / channels);
  const auto masked = [&](size_t i) {
    return HasRelu(call) && call.inputs[5][i] <= 0 ? 0.0 : call.inputs[4][i];
  };
  for (size_t c = 0; c < channels; ++c) {
    const double mean = call.inputs[2][c];
    const double inverse = InverseDeviation(call, call.inputs[3][c]);
    double dgamma = 0;
    double dbeta = 0;
    for (size_t i = c; i < x.size(); i += channels) {
      dgamma += masked(i) * (x[i] - mean) * inverse;
      dbeta += masked(i);
    }
    for (size_t i = c; i < x.size(); i += channels) {
      const double normalized = (x[i] - mean) * inverse;
      call.outputs[0][i] =
          call.inputs[1][c] * inverse * (masked(i) - dbeta / count - normalized * dgamma / count);
    }
    call.outputs[1][c] = dgamma;
    call.outputs[2][c] = dbeta;
  }
}

}  // namespace ringmaster::graph
