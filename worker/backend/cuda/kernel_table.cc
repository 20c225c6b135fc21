#include "worker/backend/cuda/kernel.h"

namespace ringmaster::cuda {

// Each in the file of its op.
BindOp BindAdd, BindAveragePool, BindAveragePoolGradient, BindBatchNorm, BindBatchNormGradient,
    BindBatchNormInference, BindBatchNormInferenceGradient, BindBoxes, BindCast, BindConv2d,
    BindConv2dInputGradient, BindConv2dWeightGradient, BindDense, BindDenseInputGradient,
    BindDenseWeightGradient, BindDropout, BindGlobalAveragePool, BindGlobalAveragePoolGradient,
    BindGlobalMaxPool, BindMaxPool, BindMaxPoolGradient, BindMultiply, BindNorm, BindNormGradient,
    BindPairLoss, BindReduceTo, BindRelu, BindReluGradient, BindReshape, BindSoftmax,
    BindSoftmaxCrossEntropy, BindSoftmaxCrossEntropyGradient, BindSoftmaxGradient, BindTopK,
    BindUnary;

namespace {

using graph::KernelOf;

constexpr auto kTable = graph::MakeKernelTable<BindFunction>({
    KernelOf<graph::Add>(&BindAdd),
    KernelOf<graph::AveragePool>(&BindAveragePool),
    KernelOf<graph::AveragePoolGradient>(&BindAveragePoolGradient),
    KernelOf<graph::BatchNorm>(&BindBatchNorm),
    KernelOf<graph::BatchNormGradient>(&BindBatchNormGradient),
    KernelOf<graph::BatchNormInference>(&BindBatchNormInference),
    KernelOf<graph::BatchNormInferenceGradient>(&BindBatchNormInferenceGradient),
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
    KernelOf<graph::GroupNorm>(&BindNorm),
    KernelOf<graph::GroupNormGradient>(&BindNormGradient),
    KernelOf<graph::LayerNorm>(&BindNorm),
    KernelOf<graph::LayerNormGradient>(&BindNormGradient),
    KernelOf<graph::MaxPool>(&BindMaxPool),
    KernelOf<graph::MaxPoolGradient>(&BindMaxPoolGradient),
    KernelOf<graph::Multiply>(&BindMultiply),
    KernelOf<graph::Pad>(&BindBoxes),
    KernelOf<graph::PairLossFamily>(&BindPairLoss),
    KernelOf<graph::ReduceTo>(&BindReduceTo),
    KernelOf<graph::Relu>(&BindRelu),
    KernelOf<graph::ReluGradient>(&BindReluGradient),
    KernelOf<graph::Reshape>(&BindReshape),
    KernelOf<graph::Slice>(&BindBoxes),
    KernelOf<graph::Softmax>(&BindSoftmax),
    KernelOf<graph::SoftmaxCrossEntropy>(&BindSoftmaxCrossEntropy),
    KernelOf<graph::SoftmaxCrossEntropyGradient>(&BindSoftmaxCrossEntropyGradient),
    KernelOf<graph::SoftmaxGradient>(&BindSoftmaxGradient),
    KernelOf<graph::Split>(&BindBoxes),
    KernelOf<graph::TopK>(&BindTopK),
    KernelOf<graph::UnaryFamily>(&BindUnary),
});

}  // namespace

BindFunction FindKernel(const graph::Kind& kind) { return kTable[kind.index()]; }

StatusOr<BindFunction> FindKernel(const graph::Node& node) {
  if (const BindFunction bind = FindKernel(node.kind); bind != nullptr) return bind;
  return Error(absl::StatusCode::kUnimplemented, "{}: the CUDA backend has no kernel for {}",
               node.name, node.op());
}

}  // namespace ringmaster::cuda
