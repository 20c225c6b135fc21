// conv2d and its gradients by cuDNN's graph API, on N,H,W,C and the canonical O,H,W,I of kernels;
// depthwise ones by own kernels.
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/kernel_table.h"
#include "worker/backend/cuda/libraries/choose_convolution.h"
#include "worker/backend/cuda/libraries/convolution_kernel.h"
#include "worker/backend/cuda/libraries/cudnn_planner.h"
#include "worker/backend/cuda/libraries/plan_cache.h"

namespace ringmaster::cuda {
namespace {

class CudnnEngine final : public ConvolutionEngine {
 public:
  CudnnEngine(cudnnHandle_t handle, std::shared_ptr<const ChosenConvolution> chosen)
      : handle_(handle), chosen_(std::move(chosen)) {}

  [[nodiscard]] size_t workspace_bytes() const override { return chosen_->plan.workspace_bytes(); }
  [[nodiscard]] Status Attach(std::span<const ConvolutionOperands> parts) override {
    RING_ASSIGN_OR_RETURN(packs_, chosen_->plan.Packs(parts));
    return absl::OkStatus();
  }
  [[nodiscard]] Status Launch(cudaStream_t stream) override {
    return chosen_->plan.Launch(handle_, packs_, stream);
  }

 private:
  const cudnnHandle_t handle_;
  const std::shared_ptr<const ChosenConvolution> chosen_;
  std::vector<CudnnDescriptor> packs_;
};

StatusOr<std::unique_ptr<Kernel>> BindConvolution(const BindContext& context) {
  const graph::Node& node = context.node;
  const auto shape = ConvolutionOf(context.program.graph, node);
  if (!shape) return Internal("{}: {} is no convolution", node.name, node.op());
  const BiasGradient bias_gradient =
      node.outputs.size() > 1 ? BiasGradient::kWanted : BiasGradient::kNone;
  if (shape->is_depthwise()) return MakeDepthwiseKernel(node.name, *shape, bias_gradient);
  RING_ASSIGN_OR_RETURN(const PlanTable* plans, PlanTableOrInstalled(context.plans));
  const DeviceFacts& facts = context.device.facts();
  PlanCache& cache = context.cache != nullptr ? *context.cache : PlansFor(facts);
  auto chosen = cache.Get(*PlanRequestOf(context.program.graph, node, facts.name, *plans));
  if (!chosen.ok()) return Annotate(chosen.status(), node.name);
  const ConvolutionVariant variant = (*chosen)->choice.variant;
  return MakeConvolutionKernel(
      node.name, {.shape = *shape,
                  .variant = variant,
                  .parts = PartsOf(*shape),
                  .engine = std::make_unique<CudnnEngine>(context.device.cudnn(), *chosen),
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
  return BindConvolution(context);
}

}  // namespace ringmaster::cuda
