#include "common/graph/ops/softmax.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/graph/ops/operands.h"

namespace ringmaster::graph {
namespace {

Status CheckRows(const char* what, const TensorType& type) {
  RING_RETURN_IF_ERROR(ExpectFloating(what, type));
  if (type.shape.size() >= 2) return absl::OkStatus();
  return InvalidArgument("expected {} with samples and classes, got {}", what,
                         ToString(type.shape));
}

}  // namespace

Status Softmax::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_RETURN_IF_ERROR(CheckRows("x", inputs[0]));
  *outputs = {{inputs[0].shape, inputs[0].dtype}};
  return absl::OkStatus();
}

Status SoftmaxGradient::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 2, 2));
  RING_RETURN_IF_ERROR(CheckRows("y", inputs[0]));
  RING_RETURN_IF_ERROR(ExpectSame("dy", inputs[1], inputs[0]));
  *outputs = {{inputs[0].shape, inputs[0].dtype}};
  return absl::OkStatus();
}

Gradients Softmax::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  return AddOp(
      request.graph,
      {node.name + "/gradient", SoftmaxGradient{}, {node.outputs[0], request.output_gradients[0]}});
}

void Softmax::Reference(const ReferenceCall& call) {
  const auto classes = static_cast<size_t>(call.input_shape(0).back());
  for (size_t first = 0; first < call.inputs[0].size(); first += classes) {
    const std::span<const double> x = call.inputs[0].subspan(first, classes);
    const double largest = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (size_t k = 0; k < classes; ++k) {
      sum += call.outputs[0][first + k] = std::exp(x[k] - largest);
    }
    for (size_t k = 0; k < classes; ++k) call.outputs[0][first + k] /= sum;
  }
}

void SoftmaxGradient::Reference(const ReferenceCall& call) {
  const auto classes = static_cast<size_t>(call.input_shape(0).back());
  for (size_t first = 0; first < call.inputs[0].size(); first += classes) {
    const std::span<const double> y = call.inputs[0].subspan(first, classes);
    const std::span<const double> dy = call.inputs[1].subspan(first, classes);
    double sum = 0;
    for (size_t k = 0; k < classes; ++k) sum += dy[k] * y[k];
    for (size_t k = 0; k < classes; ++k) call.outputs[0][first + k] = y[k] * (dy[k] - sum);
  }
}

namespace {

Status CheckLabelOperands(OpInputs inputs) {
  RING_RETURN_IF_ERROR(ExpectRank("logits(N,K)", inputs[0], 2));
  RING_RETURN_IF_ERROR(ExpectType("logits", inputs[0], DType::kFloat32));
  RING_RETURN_IF_ERROR(ExpectShape("labels", inputs[1], {inputs[0].shape[0]}));
  return ExpectType("labels", inputs[1], DType::kInt32);
}

struct Row {
  std::span<const double> logits;
  size_t label;
};

Row RowAt(const ReferenceCall& call, size_t n) {
  const auto classes = static_cast<size_t>(call.input_shape(0)[1]);
  return {call.inputs[0].subspan(n * classes, classes), static_cast<size_t>(call.inputs[1][n])};
}

// log of the sum of exp(logits), without overflow.
double LogSum(std::span<const double> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (double logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

Status CheckLoss(const Node& node, OpInputs inputs) {
  const double smoothing = node.attributes<SoftmaxCrossEntropyAttributes>()->label_smoothing;
  if (smoothing >= 0 && smoothing < 1) return CheckLabelOperands(inputs);
  return InvalidArgument("label_smoothing must be at least 0 and under 1, got {}", smoothing);
}

// The share of rows' own targets is the last input, behind as many others.
Status CheckShare(OpInputs inputs, size_t others) {
  if (inputs.size() == others) return absl::OkStatus();
  return ExpectSame("the share", inputs[others], {{}, DType::kFloat32});
}

// What the target gives each class, and the label more than that, and the next row's label.
struct Target {
  double each, label, next;
};

Target TargetOf(const ReferenceCall& call, size_t others) {
  const double smoothing = call.node.attributes<SoftmaxCrossEntropyAttributes>()->label_smoothing;
  const double share = call.inputs.size() == others ? 1 : call.inputs[others][0];
  return {smoothing / static_cast<double>(call.input_shape(0)[1]), (1 - smoothing) * share,
          (1 - smoothing) * (1 - share)};
}

}  // namespace

Status SoftmaxCrossEntropy::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 2, 3));
  RING_RETURN_IF_ERROR(CheckLoss(node, inputs));
  RING_RETURN_IF_ERROR(CheckShare(inputs, 2));
  *outputs = {{{}, DType::kFloat32}};
  return absl::OkStatus();
}

Status SoftmaxCrossEntropyGradient::InferTypes(const Node& node, OpInputs inputs,
                                               OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 3, 4));
  RING_RETURN_IF_ERROR(CheckLoss(node, inputs));
  RING_RETURN_IF_ERROR(CheckShare(inputs, 3));
  RING_RETURN_IF_ERROR(ExpectSame("the seed", inputs[2], {{}, DType::kFloat32}));
  *outputs = {{inputs[0].shape, DType::kFloat32}};
  return absl::OkStatus();
}

Status TopK::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 2, 2));
  RING_RETURN_IF_ERROR(CheckLabelOperands(inputs));
  if (node.as<TopK>()->k < 1) {
    return InvalidArgument("k must be at least 1, got {}", node.as<TopK>()->k);
  }
  *outputs = {{{}, DType::kFloat32}};
  return absl::OkStatus();
}

Gradients SoftmaxCrossEntropy::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  std::vector<ValueId> inputs = {node.inputs[0], node.inputs[1], request.output_gradients[0]};
  if (node.inputs.size() == 3) inputs.push_back(node.inputs[2]);
  std::vector<ValueId> gradients(node.inputs.size(), kNoValue);
  RING_ASSIGN_OR_RETURN(
      const auto made,
      AddOp(request.graph,
            {node.name + "/gradient",
             SoftmaxCrossEntropyGradient{*node.attributes<SoftmaxCrossEntropyAttributes>()},
             std::move(inputs)}));
  gradients[0] = made[0];
  return gradients;
}

void SoftmaxCrossEntropy::Reference(const ReferenceCall& call) {
  const Target target = TargetOf(call, 2);
  const size_t rows = call.inputs[1].size();
  for (size_t n = 0; n < rows; ++n) {
    const Row row = RowAt(call, n);
    double expected = target.label * row.logits[row.label];
    expected += target.next * row.logits[RowAt(call, (n + 1) % rows).label];
    for (double logit : row.logits) expected += target.each * logit;
    call.outputs[0][0] += LogSum(row.logits) - expected;
  }
}

void SoftmaxCrossEntropyGradient::Reference(const ReferenceCall& call) {
  const Target target = TargetOf(call, 3);
  const double seed = call.inputs[2][0];
  const size_t rows = call.inputs[1].size();
  for (size_t n = 0; n < rows; ++n) {
    const Row row = RowAt(call, n);
    const size_t next = RowAt(call, (n + 1) % rows).label;
    const double log_sum = LogSum(row.logits);
    for (size_t k = 0; k < row.logits.size(); ++k) {
      const double wanted =
          target.each + (k == row.label ? target.label : 0) + (k == next ? target.next : 0);
      call.outputs[0][n * row.logits.size() + k] =
          (std::exp(row.logits[k] - log_sum) - wanted) * seed;
    }
  }
}

void TopK::Reference(const ReferenceCall& call) {
  for (size_t n = 0; n < call.inputs[1].size(); ++n) {
    const Row row = RowAt(call, n);
    const double own = row.logits[row.label];
    int64_t before = 0;
    for (size_t k = 0; k < row.logits.size(); ++k) {
      if (row.logits[k] > own || (k < row.label && row.logits[k] == own)) ++before;
    }
    if (own == own && before < call.node.as<TopK>()->k) call.outputs[0][0] += 1;
  }
}

}  // namespace ringmaster::graph
