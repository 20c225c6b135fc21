// conv2d and its gradients by cuDNN's graph API, on N,H,W,C and the canonical O,H,W,I of kernels;
// depthwise ones by own kernels, and the gradient of weights as a product where it is one.
#include <span>
#include <utility>

#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/kernel_table.h"
#include "worker/backend/cuda/libraries/choose_convolution.h"
#include "worker/backend/cuda/libraries/convolution_kernel.h"
#include "worker/backend/cuda/libraries/cublas_matmul.h"

namespace ringmaster::cuda {

BindOp BindDenseWeightGradient;  // dense.cc

namespace {

class CudnnEngine final : public ConvolutionEngine {
 public:
  CudnnEngine(cudnnHandle_t handle, ConvolutionPlan plan)
      : handle_(handle), plan_(std::move(plan)) {}

  [[nodiscard]] size_t workspace_bytes() const override { return plan_.workspace_bytes(); }
  [[nodiscard]] Status Attach(std::span<const ConvolutionOperands> parts) override {
    return plan_.Attach(parts);
  }
  [[nodiscard]] Status Launch(cudaStream_t stream) override {
    return plan_.Launch(handle_, stream);
  }

 private:
  const cudnnHandle_t handle_;
  ConvolutionPlan plan_;
};

StatusOr<std::unique_ptr<Kernel>> BindConvolution(const BindContext& context) {
  const graph::Node& node = context.node;
  const auto shape = ConvolutionOf(context.program.graph, node);
  if (!shape) return Internal("{}: {} is no convolution", node.name, node.op());
  const BiasGradient bias_gradient =
      node.outputs.size() > 1 ? BiasGradient::kWanted : BiasGradient::kNone;
  if (shape->is_depthwise()) return MakeDepthwiseKernel(node.name, *shape, bias_gradient);
  RING_ASSIGN_OR_RETURN(const PlanTable* plans, PlanTableOrInstalled(context.plans));
  const CudnnTarget target = {.handle = context.device.cudnn()};
  const int64_t parts = PartsOf(*shape);
  auto chosen =
      ChooseConvolution(target, context.device.facts().name, PartOf(*shape, parts), *plans);
  if (!chosen.ok()) return Annotate(chosen.status(), node.name);
  return MakeConvolutionKernel(
      node.name, {.shape = *shape,
                  .variant = chosen->choice.variant,
                  .parts = parts,
                  .engine = std::make_unique<CudnnEngine>(target.handle, std::move(chosen->plan)),
                  .bias_gradient = bias_gradient});
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindConv2d(const BindContext& context) {
  return BindConvolution(context);
}

StatusOr<std::unique_ptr<Kernel>> BindConv2dInputGradient(const BindContext& context) {
  return BindConvolution(context);
}

StatusOr<std::unique_ptr<Kernel>> BindConv2dWeightGradient(const BindContext& context) {
  if (MatmulOf(context.program.graph, context.node)) return BindDenseWeightGradient(context);
  return BindConvolution(context);
}

}  // namespace ringmaster::cuda
