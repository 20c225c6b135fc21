#include "worker/backend/cuda/kernel_table.h"

namespace ringmaster::cuda {

// Each in the file of its op.
BindOp BindAdd, BindBatchNorm, BindBatchNormGradient, BindBatchNormInference,
    BindBatchNormInferenceGradient, BindCast, BindConv2d, BindConv2dInputGradient,
    BindConv2dWeightGradient, BindDense, BindDenseInputGradient, BindDenseWeightGradient,
    BindDropout, BindGlobalAveragePool, BindGlobalAveragePoolGradient, BindMaxPool,
    BindMaxPoolGradient, BindNorm, BindNormGradient, BindPairLoss, BindRelu, BindReluGradient,
    BindReshape, BindSoftmax, BindSoftmaxCrossEntropy, BindSoftmaxCrossEntropyGradient,
    BindSoftmaxGradient, BindTopK, BindUnary;

namespace {

using graph::KernelOf;

constexpr auto kTable = graph::MakeKernelTable<BindFunction>({
    KernelOf<graph::Add>(&BindAdd),
    KernelOf<graph::BatchNorm>(&BindBatchNorm),
    KernelOf<graph::BatchNormGradient>(&BindBatchNormGradient),
    KernelOf<graph::BatchNormInference>(&BindBatchNormInference),
    KernelOf<graph::BatchNormInferenceGradient>(&BindBatchNormInferenceGradient),
    KernelOf<graph::Cast>(&BindCast),
    KernelOf<graph::Conv2d>(&BindConv2d),
    KernelOf<graph::Conv2dInputGradient>(&BindConv2dInputGradient),
    KernelOf<graph::Conv2dWeightGradient>(&BindConv2dWeightGradient),
    KernelOf<graph::Dense>(&BindDense),
    KernelOf<graph::DenseInputGradient>(&BindDenseInputGradient),
    KernelOf<graph::DenseWeightGradient>(&BindDenseWeightGradient),
    KernelOf<graph::Dropout>(&BindDropout),
    KernelOf<graph::DropoutGradient>(&BindDropout),
    KernelOf<graph::GlobalAveragePool>(&BindGlobalAveragePool),
    KernelOf<graph::GlobalAveragePoolGradient>(&BindGlobalAveragePoolGradient),
    KernelOf<graph::GroupNorm>(&BindNorm),
    KernelOf<graph::GroupNormGradient>(&BindNormGradient),
    KernelOf<graph::LayerNorm>(&BindNorm),
    KernelOf<graph::LayerNormGradient>(&BindNormGradient),
    KernelOf<graph::MaxPool>(&BindMaxPool),
    KernelOf<graph::MaxPoolGradient>(&BindMaxPoolGradient),
    KernelOf<graph::PairLossFamily>(&BindPairLoss),
    KernelOf<graph::Relu>(&BindRelu),
    KernelOf<graph::ReluGradient>(&BindReluGradient),
    KernelOf<graph::Reshape>(&BindReshape),
    KernelOf<graph::Softmax>(&BindSoftmax),
    KernelOf<graph::SoftmaxGradient>(&BindSoftmaxGradient),
    KernelOf<graph::SoftmaxCrossEntropy>(&BindSoftmaxCrossEntropy),
    KernelOf<graph::SoftmaxCrossEntropyGradient>(&BindSoftmaxCrossEntropyGradient),
    KernelOf<graph::TopK>(&BindTopK),
    KernelOf<graph::UnaryFamily>(&BindUnary),
});

// What of an op that has a kernel that kernel cannot do; nullptr: the node asks for nothing of it.
const char* MissingForm(const graph::Graph& graph, const graph::Node& node) {
  if (node.as<graph::Add>() != nullptr &&
      graph.value(node.inputs[0]).shape != graph.value(node.inputs[1]).shape) {
    return "operands of different shapes";
  }
  if (const auto* dropout = node.attributes<graph::DropoutAttributes>()) {
    if (dropout->per_sample) return "per_sample";
  }
  return nullptr;
}

}  // namespace

BindFunction FindKernel(const graph::Kind& kind) { return kTable[kind.index()]; }

StatusOr<BindFunction> FindKernel(const graph::Graph& graph, const graph::Node& node) {
  const BindFunction bind = FindKernel(node.kind);
  const char* form = MissingForm(graph, node);
  if (bind != nullptr && form == nullptr) return bind;
  return Error(absl::StatusCode::kUnimplemented, "{}: the CUDA backend has no kernel for {}{}{}",
               node.name, node.op(), form == nullptr ? "" : " with ", form == nullptr ? "" : form);
}

}  // namespace ringmaster::cuda
