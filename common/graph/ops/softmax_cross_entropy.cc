#include "common/graph/ops/softmax_cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "common/graph/ops/operands.h"

namespace ringmaster::graph {
namespace {

Status CheckLossOperands(std::span<const TensorType> inputs) {
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

}  // namespace

Status SoftmaxCrossEntropy::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 2, 2));
  RING_RETURN_IF_ERROR(CheckLossOperands(inputs));
  *outputs = {{{}, DType::kFloat32, "sum"}, {{}, DType::kFloat32, "correct"}};
  return absl::OkStatus();
}

Status SoftmaxCrossEntropyGradient::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 3, 3));
  RING_RETURN_IF_ERROR(CheckLossOperands(inputs));
  RING_RETURN_IF_ERROR(ExpectSame("the seed", inputs[2], {{}, DType::kFloat32}));
  *outputs = {{inputs[0].shape, DType::kFloat32}};
  return absl::OkStatus();
}

Gradients SoftmaxCrossEntropy::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  if (request.output_gradients[1] != kNoValue) {
    return InvalidArgument("{}: a count has no gradient", node.name);
  }
  RING_ASSIGN_OR_RETURN(
      const auto made,
      AddOp(request.graph, {node.name + "/gradient",
                            SoftmaxCrossEntropyGradient{},
                            {node.inputs[0], node.inputs[1], request.output_gradients[0]}}));
  return std::vector<ValueId>{made[0], kNoValue};
}

void SoftmaxCrossEntropy::Reference(const ReferenceCall& call) {
  for (size_t n = 0; n < call.inputs[1].size(); ++n) {
    const Row row = RowAt(call, n);
    call.outputs[0][0] += LogSum(row.logits) - row.logits[row.label];
    const auto first = std::max_element(row.logits.begin(), row.logits.end());
    if (static_cast<size_t>(first - row.logits.begin()) == row.label) call.outputs[1][0] += 1;
  }
}

void SoftmaxCrossEntropyGradient::Reference(const ReferenceCall& call) {
  const double seed = call.inputs[2][0];
  for (size_t n = 0; n < call.inputs[1].size(); ++n) {
    const Row row = RowAt(call, n);
    const double log_sum = LogSum(row.logits);
    for (size_t k = 0; k < row.logits.size(); ++k) {
      const double onehot = k == row.label ? 1 : 0;
      call.outputs[0][n * row.logits.size() + k] =
          (std::exp(row.logits[k] - log_sum) - onehot) * seed;
    }
  }
}

}  // namespace ringmaster::graph
