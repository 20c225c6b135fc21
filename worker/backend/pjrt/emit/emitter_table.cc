#include "worker/backend/pjrt/emit/emitter.h"

namespace ringmaster::pjrt {

// Each in the file of its op.
EmitOp EmitAdd, EmitAveragePool, EmitAveragePoolGradient, EmitBatchNorm, EmitBatchNormGradient,
    EmitBatchNormInference, EmitBatchNormInferenceGradient, EmitCast, EmitConcat, EmitConv2d,
    EmitConv2dInputGradient, EmitConv2dWeightGradient, EmitDense, EmitDenseInputGradient,
    EmitDenseWeightGradient, EmitDropout, EmitGlobalAveragePool, EmitGlobalAveragePoolGradient,
    EmitGlobalMaxPool, EmitMaxPool, EmitMaxPoolGradient, EmitMultiply, EmitNorm, EmitNormGradient,
    EmitPad, EmitPairLoss, EmitReduceTo, EmitRelu, EmitReluGradient, EmitReshape, EmitSlice,
    EmitSoftmax, EmitSoftmaxGradient, EmitSoftmaxCrossEntropy, EmitSoftmaxCrossEntropyGradient,
    EmitSplit, EmitTopK, EmitUnary;

namespace {

using graph::KernelOf;

constexpr auto kTable = graph::MakeKernelTable<EmitFunction>({
    KernelOf<graph::Add>(&EmitAdd),
    KernelOf<graph::AveragePool>(&EmitAveragePool),
    KernelOf<graph::AveragePoolGradient>(&EmitAveragePoolGradient),
    KernelOf<graph::BatchNorm>(&EmitBatchNorm),
    KernelOf<graph::BatchNormGradient>(&EmitBatchNormGradient),
    KernelOf<graph::BatchNormInference>(&EmitBatchNormInference),
    KernelOf<graph::BatchNormInferenceGradient>(&EmitBatchNormInferenceGradient),
    KernelOf<graph::Cast>(&EmitCast),
    KernelOf<graph::Concat>(&EmitConcat),
    KernelOf<graph::Conv2d>(&EmitConv2d),
    KernelOf<graph::Conv2dInputGradient>(&EmitConv2dInputGradient),
    KernelOf<graph::Conv2dWeightGradient>(&EmitConv2dWeightGradient),
    KernelOf<graph::Dense>(&EmitDense),
    KernelOf<graph::DenseInputGradient>(&EmitDenseInputGradient),
    KernelOf<graph::DenseWeightGradient>(&EmitDenseWeightGradient),
    KernelOf<graph::Dropout>(&EmitDropout),
    KernelOf<graph::DropoutGradient>(&EmitDropout),
    KernelOf<graph::GlobalAveragePool>(&EmitGlobalAveragePool),
    KernelOf<graph::GlobalAveragePoolGradient>(&EmitGlobalAveragePoolGradient),
    KernelOf<graph::GlobalMaxPool>(&EmitGlobalMaxPool),
    KernelOf<graph::GroupNorm>(&EmitNorm),
    KernelOf<graph::GroupNormGradient>(&EmitNormGradient),
    KernelOf<graph::LayerNorm>(&EmitNorm),
    KernelOf<graph::LayerNormGradient>(&EmitNormGradient),
    KernelOf<graph::MaxPool>(&EmitMaxPool),
    KernelOf<graph::MaxPoolGradient>(&EmitMaxPoolGradient),
    KernelOf<graph::Multiply>(&EmitMultiply),
    KernelOf<graph::Pad>(&EmitPad),
    KernelOf<graph::PairLossFamily>(&EmitPairLoss),
    KernelOf<graph::ReduceTo>(&EmitReduceTo),
    KernelOf<graph::Relu>(&EmitRelu),
    KernelOf<graph::ReluGradient>(&EmitReluGradient),
    KernelOf<graph::Reshape>(&EmitReshape),
    KernelOf<graph::Slice>(&EmitSlice),
    KernelOf<graph::Softmax>(&EmitSoftmax),
    KernelOf<graph::SoftmaxGradient>(&EmitSoftmaxGradient),
    KernelOf<graph::SoftmaxCrossEntropy>(&EmitSoftmaxCrossEntropy),
    KernelOf<graph::SoftmaxCrossEntropyGradient>(&EmitSoftmaxCrossEntropyGradient),
    KernelOf<graph::Split>(&EmitSplit),
    KernelOf<graph::TopK>(&EmitTopK),
    KernelOf<graph::UnaryFamily>(&EmitUnary),
});

}  // namespace

EmitFunction FindEmitter(const graph::Kind& kind) { return kTable[kind.index()]; }

}  // namespace ringmaster::pjrt
