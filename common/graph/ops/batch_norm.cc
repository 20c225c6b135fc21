#include "common/graph/ops/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/graph/ops/operands.h"
#include "common/graph/ops/unary.h"

namespace ringmaster::graph {
namespace {

// Where what one reads of a batch_norm stands among its operands.
struct Operands {
  static constexpr size_t kNone = 0;  // where x is
  size_t gamma, beta, end;

  explicit Operands(const BatchNormAttributes& attributes)
      : gamma(attributes.scale ? 1 : kNone),
        beta(attributes.center ? gamma + 1 : kNone),
        end(1 + (attributes.scale ? 1 : 0) + (attributes.center ? 1 : 0)) {}
};

const BatchNormAttributes& AttributesOf(const Node& node) {
  return *node.attributes<BatchNormAttributes>();
}

// x, and from operand `at` one float32 vector over the channels for each of `names`.
Status CheckBatchNormOperands(OpInputs inputs, size_t at, const std::vector<const char*>& names) {
  RING_RETURN_IF_ERROR(ExpectFloating("x", inputs[0]));
  if (inputs[0].shape.size() < 2) {
    return InvalidArgument("expected x with at least 2 dimensions, got {}",
                           ToString(inputs[0].shape));
  }
  for (const char* name : names) {
    RING_RETURN_IF_ERROR(ExpectVector(name, inputs[at++], inputs[0].shape.back()));
  }
  return absl::OkStatus();
}

std::vector<const char*> ScalesOf(const BatchNormAttributes& attributes) {
  std::vector<const char*> names;
  if (attributes.scale) names.push_back("gamma");
  if (attributes.center) names.push_back("beta");
  return names;
}

// What comes last where there is a residual, that or what its gradient reads; it needs what keeps
// the places before it.
Status CheckResidual(const BatchNormAttributes& attributes, OpInputs inputs) {
  if (!attributes.residual) return absl::OkStatus();
  if (!attributes.scale || !attributes.center) {
    return InvalidArgument("an add is folded only where there are gamma and beta");
  }
  if (attributes.activation != Activation::kNone && attributes.activation != Activation::kRelu) {
    return InvalidArgument("a {} is folded only where there is no residual",
                           Name(attributes.activation));
  }
  return ExpectSame("residual", inputs.back(), inputs[0]);
}

double InverseDeviation(const ReferenceCall& call, double variance) {
  return 1 / std::sqrt(variance + AttributesOf(call.node).epsilon);
}

// y of what lies before the activation.
double Activated(Activation activation, double z) {
  switch (activation) {
    case Activation::kRelu:
      return std::max(z, 0.0);
    case Activation::kRelu6:
      return std::clamp(z, 0.0, 6.0);
    case Activation::kSwish:
      return Swish{}.Forward(z);
    case Activation::kNone:
      break;
  }
  return z;
}

// What of dy passes the activation where that lay before it, or, of a relu, where that is y.
double Passed(Activation activation, double z, double dy) {
  switch (activation) {
    case Activation::kRelu:
      return z > 0 ? dy : 0;
    case Activation::kRelu6:
      return z > 0 && z < 6 ? dy : 0;
    case Activation::kSwish:
      return Swish{}.Backward(z, dy);
    case Activation::kNone:
      break;
  }
  return dy;
}

// What one channel's x becomes before the activation.
struct Line {
  double mean, scale, beta;
  double operator()(double x) const { return (x - mean) * scale + beta; }
};

// One channel: y from x and the residual, which comes last, by the given statistics.
void Normalize(const ReferenceCall& call, size_t channel, double mean, double variance) {
  const Operands at(AttributesOf(call.node));
  const std::span<const double> x = call.inputs[0];
  const std::span<double> y = call.outputs[0];
  const auto channels = static_cast<size_t>(call.input_shape(0).back());
  const double gamma = at.gamma == Operands::kNone ? 1 : call.inputs[at.gamma][channel];
  const Line line = {mean, gamma * InverseDeviation(call, variance),
                     at.beta == Operands::kNone ? 0 : call.inputs[at.beta][channel]};
  for (size_t i = channel; i < x.size(); i += channels) {
    y[i] = line(x[i]);
    if (AttributesOf(call.node).residual) y[i] += call.inputs.back()[i];
    y[i] = Activated(AttributesOf(call.node).activation, y[i]);
  }
}

}  // namespace

Status BatchNorm::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  const BatchNormAttributes& attributes = AttributesOf(node);
  const std::vector<const char*> names = ScalesOf(attributes);
  const size_t count = 1 + names.size() + (attributes.residual ? 1 : 0);
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, count, count));
  RING_RETURN_IF_ERROR(CheckBatchNormOperands(inputs, 1, names));
  RING_RETURN_IF_ERROR(CheckResidual(attributes, inputs));
  const Shape channels = {inputs[0].shape.back()};
  *outputs = {{inputs[0].shape, inputs[0].dtype},
              {channels, DType::kFloat32, "mean"},
              {channels, DType::kFloat32, "variance"}};
  return absl::OkStatus();
}

Status BatchNormGradient::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  const BatchNormAttributes& attributes = AttributesOf(node);
  if (attributes.residual && attributes.activation != Activation::kRelu) {
    return InvalidArgument("without relu the gradient of the residual is dy");
  }
  std::vector<const char*> names = {"mean", "variance"};
  if (attributes.scale) names.push_back("gamma");
  if (attributes.center && attributes.activation != Activation::kNone) names.push_back("beta");
  const size_t count = 2 + names.size();
  const size_t most = count + (attributes.residual ? 2 : 0);
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, attributes.residual ? count + 1 : count, most));
  RING_RETURN_IF_ERROR(CheckBatchNormOperands(inputs, 2, names));
  RING_RETURN_IF_ERROR(ExpectSame("dy", inputs[1], inputs[0]));
  RING_RETURN_IF_ERROR(CheckResidual(attributes, inputs));
  for (size_t i = count; i < inputs.size(); ++i) {
    RING_RETURN_IF_ERROR(ExpectSame(i == count ? "y" : "more of dy", inputs[i], inputs[0]));
  }
  const Shape channels = {inputs[0].shape.back()};
  *outputs = {{inputs[0].shape, inputs[0].dtype}};
  for (const char* name : ScalesOf(attributes)) {
    outputs->push_back({channels, DType::kFloat32, name});
  }
  if (attributes.residual) outputs->push_back({inputs[0].shape, inputs[0].dtype, "residual"});
  return absl::OkStatus();
}

Status BatchNormInference::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  const BatchNormAttributes& attributes = AttributesOf(node);
  std::vector<const char*> names = ScalesOf(attributes);
  names.insert(names.end(), {"moving_mean", "moving_variance"});
  const size_t count = 1 + names.size() + (attributes.residual ? 1 : 0);
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, count, count));
  RING_RETURN_IF_ERROR(CheckBatchNormOperands(inputs, 1, names));
  RING_RETURN_IF_ERROR(CheckResidual(attributes, inputs));
  *outputs = {{inputs[0].shape, inputs[0].dtype}};
  return absl::OkStatus();
}

Status BatchNormInferenceGradient::InferTypes(const Node& node, OpInputs inputs,
                                              OpOutputs* outputs) {
  std::vector<const char*> names;
  if (AttributesOf(node).scale) names.push_back("gamma");
  names.push_back("moving_variance");
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1 + names.size(), 1 + names.size()));
  RING_RETURN_IF_ERROR(CheckBatchNormOperands(inputs, 1, names));
  *outputs = {{inputs[0].shape, inputs[0].dtype}};
  return absl::OkStatus();
}

Gradients BatchNormInference::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  BatchNormAttributes attributes = AttributesOf(node);
  attributes.activation = Activation::kNone;  // which a pass folds in later
  const Operands at(attributes);
  Node gradient = {node.name + "/gradient",
                   BatchNormInferenceGradient{attributes},
                   {request.output_gradients[0]}};
  if (attributes.scale) gradient.inputs.push_back(node.inputs[at.gamma]);
  gradient.inputs.push_back(node.inputs[at.end + 1]);
  return AddOp(request.graph, std::move(gradient));
}

// The gradients stand in the order of the operands.
Gradients BatchNorm::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  if (request.output_gradients[1] != kNoValue || request.output_gradients[2] != kNoValue) {
    return InvalidArgument("{}: no gradient flows through the statistics of a batch_norm",
                           node.name);
  }
  const BatchNormAttributes& attributes = AttributesOf(node);
  const Operands at(attributes);
  BatchNormAttributes own = attributes;
  own.residual = attributes.residual && attributes.activation == Activation::kRelu;
  Node gradient = {node.name + "/gradient",
                   BatchNormGradient{own},
                   {node.inputs[0], request.output_gradients[0], node.outputs[1], node.outputs[2]}};
  if (attributes.scale) gradient.inputs.push_back(node.inputs[at.gamma]);
  if (attributes.center && attributes.activation != Activation::kNone) {
    gradient.inputs.push_back(node.inputs[at.beta]);
  }
  if (own.residual) gradient.inputs.push_back(node.outputs[0]);
  RING_ASSIGN_OR_RETURN(auto gradients, AddOp(request.graph, std::move(gradient)));
  if (attributes.residual && !own.residual) gradients.push_back(request.output_gradients[0]);
  return gradients;
}

void BatchNorm::Reference(const ReferenceCall& call) {
  const std::span<const double> x = call.inputs[0];
  const auto channels = static_cast<size_t>(call.input_shape(0).back());
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
  const size_t mean = Operands(AttributesOf(call.node)).end;
  for (size_t c = 0; c < call.inputs[mean].size(); ++c) {
    Normalize(call, c, call.inputs[mean][c], call.inputs[mean + 1][c]);
  }
}

void BatchNormInferenceGradient::Reference(const ReferenceCall& call) {
  const bool scale = AttributesOf(call.node).scale;
  const std::span<const double> variance = call.inputs[scale ? 2 : 1];
  for (size_t i = 0; i < call.inputs[0].size(); ++i) {
    const size_t c = i % variance.size();
    const double gamma = scale ? call.inputs[1][c] : 1;
    call.outputs[0][i] = call.inputs[0][i] * gamma * InverseDeviation(call, variance[c]);
  }
}

// dx = gamma r (dy - mean(dy) - n mean(dy n)), n the normalized x, r = 1 / sqrt(variance + epsilon)
// (Ioffe and Szegedy, "Batch normalization", 2015, section 3).
void BatchNormGradient::Reference(const ReferenceCall& call) {
  const BatchNormAttributes& attributes = AttributesOf(call.node);
  const std::span<const double> x = call.inputs[0];
  const size_t channels = call.inputs[2].size();
  const double count = static_cast<double>(x.size() / channels);
  for (size_t c = 0; c < channels; ++c) {
    const double mean = call.inputs[2][c];
    const double inverse = InverseDeviation(call, call.inputs[3][c]);
    const double gamma = attributes.scale ? call.inputs[4][c] : 1;
    const bool beta = attributes.center && attributes.activation != Activation::kNone;
    const Line line = {mean, gamma * inverse, beta ? call.inputs[attributes.scale ? 5 : 4][c] : 0};
    const auto passed = [&](size_t i) {
      const double z = attributes.residual ? call.inputs[6][i] : line(x[i]);
      const double more = call.inputs.size() > 7 ? call.inputs[7][i] : 0;
      return Passed(attributes.activation, z, call.inputs[1][i] + more);
    };
    for (size_t i = c; attributes.residual && i < x.size(); i += channels) {
      call.outputs[3][i] = passed(i);
    }
    double dgamma = 0;
    double dbeta = 0;
    for (size_t i = c; i < x.size(); i += channels) {
      dgamma += passed(i) * (x[i] - mean) * inverse;
      dbeta += passed(i);
    }
    for (size_t i = c; i < x.size(); i += channels) {
      const double normalized = (x[i] - mean) * inverse;
      call.outputs[0][i] =
          gamma * inverse * (passed(i) - dbeta / count - normalized * dgamma / count);
    }
    if (attributes.scale) call.outputs[1][c] = dgamma;
    if (attributes.center) call.outputs[attributes.scale ? 2 : 1][c] = dbeta;
  }
}

}  // namespace ringmaster::graph
