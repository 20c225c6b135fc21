#include "common/graph/ops/op_table.h"

#include <array>
#include <utility>

#include "common/graph/ops/rows.h"

namespace ringmaster::graph {
namespace {

constexpr std::array kTable = {
    &kAdd,
    &kBatchNorm,
    &kBatchNormGradient,
    &kBatchNormInference,
    &kCast,
    &kConv2d,
    &kConv2dInputGradient,
    &kConv2dWeightGradient,
    &kDense,
    &kDenseInputGradient,
    &kDenseWeightGradient,
    &kDropout,
    &kDropoutGradient,
    &kGlobalAveragePool,
    &kGlobalAveragePoolGradient,
    &kMaxPool,
    &kMaxPoolGradient,
    &kRelu,
    &kReluGradient,
    &kReshape,
    &kSoftmaxCrossEntropy,
    &kSoftmaxCrossEntropyGradient,
};

}  // namespace

std::span<const Op* const> OpTable() { return kTable; }

const Op* FindOp(const std::string& name) {
  for (const Op* op : kTable) {
    if (name == op->name) return op;
  }
  return nullptr;
}

StatusOr<std::vector<ValueId>> AddOp(Graph* graph, Node node, std::vector<TensorType> wanted) {
  const Op* op = FindOp(node.op);
  if (op == nullptr) return InvalidArgument("{}: there is no op named {}", node.name, node.op);
  std::vector<TensorType> inputs;
  for (ValueId input : node.inputs) {
    inputs.push_back({graph->value(input).shape, graph->value(input).dtype});
  }
  Status status = op->shape(node, inputs, &wanted);
  if (!status.ok()) return Annotate(status, fmt::format("{} ({})", node.name, node.op));
  std::vector<Value> outputs;
  for (TensorType& type : wanted) {
    std::string name = type.suffix.empty() ? node.name : node.name + "/" + type.suffix;
    outputs.push_back({std::move(name), std::move(type.shape), type.dtype});
  }
  return graph->AddNode(std::move(node), std::move(outputs));
}

}  // namespace ringmaster::graph
