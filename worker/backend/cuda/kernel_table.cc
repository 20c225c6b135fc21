#include "worker/backend/cuda/kernel_table.h"

namespace ringmaster::cuda {

// Each in the file of its op.
BindOp BindAdd, BindAveragePool, BindAveragePoolGradient, BindBatchNorm, BindBatchNormGradient,
    BindBatchNormInference, BindBoxes, BindCast, BindConv2d, BindConv2dInputGradient,
    BindConv2dWeightGradient, BindDense, BindDenseInputGradient, BindDenseWeightGradient,
    BindDropout, BindGlobalAveragePool, BindGlobalAveragePoolGradient, BindGlobalMaxPool,
    BindMaxPool, BindMaxPoolGradient, BindMultiply, BindReduceTo, BindRelu, BindReluGradient,
    BindReshape, BindSoftmaxCrossEntropy, BindSoftmaxCrossEntropyGradient, BindTopK;

namespace {

using graph::KernelOf;

constexpr auto kTable = graph::MakeKernelTable<BindFunction>({
    KernelOf<graph::Add>(&BindAdd),
    KernelOf<graph::AveragePool>(&BindAveragePool),
    KernelOf<graph::AveragePoolGradient>(&BindAveragePoolGradient),
    KernelOf<graph::BatchNorm>(&BindBatchNorm),
    KernelOf<graph::BatchNormGradient>(&BindBatchNormGradient),
    KernelOf<graph::BatchNormInference>(&BindBatchNormInference),
    KernelOf<graph::Cast>(&BindCast),
    KernelOf<graph::Concat>(&BindBoxes),
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
    KernelOf<graph::GlobalMaxPool>(&BindGlobalMaxPool),
    KernelOf<graph::MaxPool>(&BindMaxPool),
    KernelOf<graph::MaxPoolGradient>(&BindMaxPoolGradient),
    KernelOf<graph::Multiply>(&BindMultiply),
    KernelOf<graph::Pad>(&BindBoxes),
    KernelOf<graph::ReduceTo>(&BindReduceTo),
    KernelOf<graph::Relu>(&BindRelu),
    KernelOf<graph::ReluGradient>(&BindReluGradient),
    KernelOf<graph::Reshape>(&BindReshape),
    KernelOf<graph::Slice>(&BindBoxes),
    KernelOf<graph::SoftmaxCrossEntropy>(&BindSoftmaxCrossEntropy),
    KernelOf<graph::SoftmaxCrossEntropyGradient>(&BindSoftmaxCrossEntropyGradient),
    KernelOf<graph::Split>(&BindBoxes),
    KernelOf<graph::TopK>(&BindTopK),
});

// What of an op that has a kernel that kernel cannot do; nullptr: the node asks for nothing of it.
const char* MissingForm(const graph::Node& node) {
  if (const auto* norm = node.attributes<graph::BatchNormAttributes>()) {
    if (!norm->scale) return "no gamma";
    if (!norm->center) return "no beta";
  }
  if (const auto* conv2d = node.attributes<graph::Conv2dAttributes>()) {
    if (conv2d->groups != 1) return "groups";
    if (conv2d->dilations != graph::Conv2dAttributes().dilations) return "dilations";
  }
  return nullptr;
}

}  // namespace

BindFunction FindKernel(const graph::Kind& kind) { return kTable[kind.index()]; }

StatusOr<BindFunction> FindKernel(const graph::Node& node) {
  const BindFunction bind = FindKernel(node.kind);
  const char* form = MissingForm(node);
  if (bind != nullptr && form == nullptr) return bind;
  return Error(absl::StatusCode::kUnimplemented, "{}: the CUDA backend has no kernel for {}{}{}",
               node.name, node.op(), form == nullptr ? "" : " with ", form == nullptr ? "" : form);
}

}  // namespace ringmaster::cuda
