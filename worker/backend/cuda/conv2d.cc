// conv2d and its gradients by cuDNN's graph API, on N,H,W,C and the canonical O,H,W,I of kernels.
// What cuDNN's variant of a shape leaves over (convolution_shape.h) is done round it by own
// kernels, on copies in the workspace: channels that are added or left out, gradients of weights
// made wide, bias and activation, the gradient of the bias.
#include <utility>

#include "worker/backend/cuda/bias_activation.h"
#include "worker/backend/cuda/choose_convolution.h"
#include "worker/backend/cuda/device.h"
#include "worker/backend/cuda/kernel_table.h"
#include "worker/backend/cuda/workspace_layout.h"

namespace ringmaster::cuda {
namespace {

// One tensor of the convolution: as the graph has it, and as cuDNN is given it, in place or as a
// copy in the workspace.
struct Side {
  DeviceMatrix outside, inside;
  size_t offset = 0;

  [[nodiscard]] bool copied() const { return !outside.SameForm(inside); }

  void Reserve(WorkspaceLayout* layout) { offset = layout->Add(copied() ? inside.bytes() : 0); }
  void Attach(const void* address, std::byte* workspace) {
    outside.data = const_cast<void*>(address);
    inside.data = copied() ? workspace + offset : outside.data;
  }
  [[nodiscard]] Status CopyIn(cudaStream_t stream) const {
    return copied() ? Resize(outside, inside, stream) : absl::OkStatus();
  }
  [[nodiscard]] Status CopyOut(cudaStream_t stream) const {
    return copied() ? Resize(inside, outside, stream) : absl::OkStatus();
  }
};

graph::DType TypeOf(const ConvolutionShape& shape, ConvolutionPass writer) {
  return shape.pass == writer ? shape.result : shape.type;
}

DeviceMatrix MatrixX(const ConvolutionShape& s) {
  return {nullptr, s.samples * s.height * s.width, s.channels,
          TypeOf(s, ConvolutionPass::kInputGradient)};
}

DeviceMatrix MatrixW(const ConvolutionShape& s) {
  return {nullptr, s.filters * s.window_height * s.window_width, s.channels,
          TypeOf(s, ConvolutionPass::kWeightGradient)};
}

DeviceMatrix MatrixY(const ConvolutionShape& s) {
  return {nullptr, s.samples * s.output_height() * s.output_width(), s.filters,
          TypeOf(s, ConvolutionPass::kForward)};
}

// A bias that is not fused stays outside.
DeviceMatrix MatrixBias(const ConvolutionShape& s) {
  return {nullptr, 1, s.filters, graph::DType::kFloat32};
}

class ConvolutionKernel final : public Kernel {
 public:
  // `shape` is the node's, `sums_bias`: a gradient of weights with one of the bias.
  ConvolutionKernel(std::string name, cudnnHandle_t cudnn, const ConvolutionShape& shape,
                    ChosenConvolution chosen, bool sums_bias)
      : name_(std::move(name)),
        cudnn_(cudnn),
        shape_(shape),
        fused_(chosen.choice.variant.fused),
        sums_bias_(sums_bias),
        x_{MatrixX(shape), MatrixX(chosen.shape)},
        w_{MatrixW(shape), MatrixW(chosen.shape)},
        y_{MatrixY(shape), MatrixY(chosen.shape)},
        bias_{MatrixBias(shape), MatrixBias(fused_ ? chosen.shape : shape)},
        plan_(std::move(chosen.plan)) {
    engine_offset_ = layout_.Add(plan_.workspace_bytes());
    for (Side* side : {&x_, &w_, &y_, &bias_}) side->Reserve(&layout_);
    sums_offset_ = layout_.Add(sums_bias ? ColumnSumWorkspace(y_.outside) : 0);
  }

  [[nodiscard]] size_t workspace_bytes() const override { return layout_.bytes(); }

  Status Attach(const Operands& operands) override {
    std::byte* const workspace = operands.workspace;
    switch (shape_.pass) {
      case ConvolutionPass::kForward:
        x_.Attach(operands.inputs[0], workspace);
        w_.Attach(operands.inputs[1], workspace);
        if (shape_.bias) bias_.Attach(operands.inputs[2], workspace);
        y_.Attach(operands.outputs[0], workspace);
        break;
      case ConvolutionPass::kInputGradient:
        y_.Attach(operands.inputs[0], workspace);
        w_.Attach(operands.inputs[1], workspace);
        x_.Attach(operands.outputs[0], workspace);
        break;
      case ConvolutionPass::kWeightGradient:
        x_.Attach(operands.inputs[0], workspace);
        y_.Attach(operands.inputs[1], workspace);
        w_.Attach(operands.outputs[0], workspace);
        if (sums_bias_) bias_gradient_ = operands.output<float>(1);
        break;
    }
    sums_ = workspace + sums_offset_;
    return plan_.Attach({x_.inside.data, w_.inside.data, y_.inside.data, bias_.inside.data,
                         workspace + engine_offset_});
  }

  Status Launch(cudaStream_t stream) override {
    const Status launched = Enqueue(stream);
    return launched.ok() ? launched : Annotate(launched, name_);
  }

 private:
  Status Enqueue(cudaStream_t stream) const {
    switch (shape_.pass) {
      case ConvolutionPass::kForward:
        return EnqueueForward(stream);
      case ConvolutionPass::kInputGradient:
        RING_RETURN_IF_ERROR(y_.CopyIn(stream));
        RING_RETURN_IF_ERROR(w_.CopyIn(stream));
        RING_RETURN_IF_ERROR(plan_.Launch(cudnn_, stream));
        return x_.CopyOut(stream);
      case ConvolutionPass::kWeightGradient:
        break;
    }
    RING_RETURN_IF_ERROR(x_.CopyIn(stream));
    RING_RETURN_IF_ERROR(y_.CopyIn(stream));
    RING_RETURN_IF_ERROR(plan_.Launch(cudnn_, stream));
    RING_RETURN_IF_ERROR(w_.CopyOut(stream));
    return sums_bias_ ? SumColumns(y_.outside, sums_, bias_gradient_, stream) : absl::OkStatus();
  }

  Status EnqueueForward(cudaStream_t stream) const {
    RING_RETURN_IF_ERROR(x_.CopyIn(stream));
    RING_RETURN_IF_ERROR(w_.CopyIn(stream));
    if (fused_ && shape_.bias) RING_RETURN_IF_ERROR(bias_.CopyIn(stream));
    RING_RETURN_IF_ERROR(plan_.Launch(cudnn_, stream));
    RING_RETURN_IF_ERROR(y_.CopyOut(stream));
    if (fused_ || !shape_.fuses_anything()) return absl::OkStatus();
    const auto* bias = shape_.bias ? static_cast<const float*>(bias_.outside.data) : nullptr;
    return AddBias(y_.outside, bias, shape_.attributes.activation, y_.outside, stream);
  }

  const std::string name_;
  const cudnnHandle_t cudnn_;
  const ConvolutionShape shape_;
  const bool fused_, sums_bias_;
  Side x_, w_, y_, bias_;
  ConvolutionPlan plan_;
  WorkspaceLayout layout_;
  size_t engine_offset_ = 0, sums_offset_ = 0;
  void* sums_ = nullptr;
  float* bias_gradient_ = nullptr;
};

StatusOr<std::unique_ptr<Kernel>> BindConvolution(const BindContext& context) {
  const graph::Node& node = context.node;
  const auto shape = ConvolutionOf(context.program.graph, node);
  if (!shape) return Internal("{}: {} is no convolution", node.name, node.op);
  RING_ASSIGN_OR_RETURN(const PlanTable* plans, PlanTableOrInstalled(context.plans));
  const CudnnTarget target = {.handle = context.device.cudnn()};
  auto chosen = ChooseConvolution(target, context.device.facts().name, *shape, *plans);
  if (!chosen.ok()) return Annotate(chosen.status(), node.name);
  return std::make_unique<ConvolutionKernel>(node.name, target.handle, *shape, *std::move(chosen),
                                             node.outputs.size() > 1);
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindConv2d(const BindContext& context) {
  return BindConvolution(context);
}

StatusOr<std::unique_ptr<Kernel>> BindConv2dInputGradient(const BindContext& context) {
  return BindConvolution(context);
}

StatusOr<std::unique_ptr<Kernel>> BindConv2dWeightGradient(const BindContext& context) {
  return BindConvolution(context);
}

}  // namespace ringmaster::cuda
