#include "worker/backend/cpu/kernel.h"

#include "worker/backend/shard_io.h"

namespace ringmaster::cpu {

// Each in the file of its family.
BindOp BindAdd, BindAveragePool, BindAveragePoolGradient, BindBatchNorm, BindBatchNormGradient,
    BindBatchNormInference, BindBatchNormInferenceGradient, BindBoxes, BindCast, BindConv2d,
    BindConv2dInputGradient, BindConv2dWeightGradient, BindDense, BindDenseInputGradient,
    BindDenseWeightGradient, BindDropout, BindGlobalAveragePool, BindGlobalAveragePoolGradient,
    BindGlobalMaxPool, BindMaxPool, BindMaxPoolGradient, BindMultiply, BindNorm, BindNormGradient,
    BindPairLoss, BindReduceTo, BindRelu, BindReluGradient, BindReshape, BindSoftmax,
    BindSoftmaxGradient, BindSoftmaxCrossEntropy, BindSoftmaxCrossEntropyGradient, BindTopK,
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
    KernelOf<graph::SoftmaxGradient>(&BindSoftmaxGradient),
    KernelOf<graph::SoftmaxCrossEntropy>(&BindSoftmaxCrossEntropy),
    KernelOf<graph::SoftmaxCrossEntropyGradient>(&BindSoftmaxCrossEntropyGradient),
    KernelOf<graph::Split>(&BindBoxes),
    KernelOf<graph::TopK>(&BindTopK),
    KernelOf<graph::UnaryFamily>(&BindUnary),
});

}  // namespace

BindFunction FindKernel(const graph::Kind& kind) { return kTable[kind.index()]; }

namespace {

// The parameter that the operand is, or is a cast of: one that layers of several types share.
std::optional<uint32_t> ParameterBehind(const graph::Program& program, graph::ValueId operand) {
  const graph::NodeId producer = program.graph.value(operand).producer;
  if (producer == graph::kFed) return ParameterOf(program, operand);
  const graph::Node& node = program.graph.node(producer);
  return node.as<graph::Cast>() == nullptr ? std::nullopt : ParameterOf(program, node.inputs[0]);
}

}  // namespace

Status BindContext::UseLayout(size_t i, const dnnl::memory::desc& desc) {
  const std::optional<uint32_t> parameter = ParameterBehind(program, node.inputs[i]);
  if (!parameter) {
    return Error(absl::StatusCode::kUnimplemented,
                 "{} ({}): input {} ({}) must be a parameter: the CPU backend keeps such operands "
                 "in layouts of its own",
                 node.name, node.op(), i, input(i).name);
  }
  RING_ASSIGN_OR_RETURN(copies[i], weights.Copy(*parameter, input(i).dtype, desc));
  return absl::OkStatus();
}

}  // namespace ringmaster::cpu
