// dense, conv2d and their gradients, by libraries.
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/libraries/convolution_kernel.h"
#include "worker/backend/cuda/libraries/cublas_matmul.h"
#include "worker/backend/cuda/libraries/cudnn_convolution.h"
#include "worker/backend/cuda/libraries/plan_cache.h"

namespace ringmaster::cuda {

// dense and its gradients by cuBLASLt, on the canonical I,O layout of kernels, and what else is one
// product (MatmulOf). Bias, activation and the gradient of the bias are own kernels: a 16-bit
// product with a bias is written in float32 first, so that y is rounded once.

namespace {

StatusOr<Matmul> BindMatmul(const BindContext& context) {
  const auto shape = MatmulOf(context.program.graph, context.node);
  if (!shape) return Internal("{}: {} is no product", context.node.name, context.node.op());
  RING_ASSIGN_OR_RETURN(const PlanTable* plans, PlanTableOrInstalled(context.plans));
  const auto* choice = plans->Find<MatmulChoice>(MatmulKey(context.device.facts().name, *shape));
  auto made = Matmul::Create(context.device.cublas_lt(), *shape, choice);
  if (!made.ok()) return Annotate(made.status(), context.node.name);
  return made;
}

// y = activation(x w + b)
class DenseKernel final : public Kernel {
 public:
  // `sum`: where the product goes, the workspace or y.
  DenseKernel(Matmul product, graph::Activation activation, const DeviceMatrix& sum,
              const DeviceMatrix& y)
      : product_(std::move(product)), activation_(activation), sum_(sum), y_(y) {
    product_offset_ = layout_.Add(product_.workspace_bytes());
    sum_offset_ = layout_.Add(sum_.type == y_.type ? 0 : sum_.bytes());
  }

  [[nodiscard]] size_t workspace_bytes() const override { return layout_.bytes(); }

  Status Attach(const Operands& operands) override {
    y_.data = operands.output<void>(0);
    sum_.data = sum_.type == y_.type ? y_.data : operands.workspace + sum_offset_;
    bias_ = operands.inputs.size() > 2 ? operands.input<float>(2) : nullptr;
    matrices_ = {operands.input<void>(0), operands.input<void>(1), sum_.data,
                 operands.workspace + product_offset_};
    return absl::OkStatus();
  }

  Status Launch(cudaStream_t stream) override {
    RING_RETURN_IF_ERROR(product_.Launch(matrices_, stream));
    if (bias_ == nullptr && activation_ == graph::Activation::kNone) return absl::OkStatus();
    return AddBias(sum_, bias_, activation_, y_, stream);
  }

 private:
  const Matmul product_;
  const graph::Activation activation_;
  WorkspaceLayout layout_;
  size_t product_offset_ = 0, sum_offset_ = 0;
  DeviceMatrix sum_, y_;
  const float* bias_ = nullptr;
  MatmulOperands matrices_;
};

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindDense(const BindContext& context) {
  const graph::Value& y = context.output(0);
  const auto activation = context.attributes<graph::DenseAttributes>().activation;
  const bool more = context.node.inputs.size() > 2 || activation != graph::Activation::kNone;
  const DeviceMatrix to = {nullptr, y.shape[0], y.shape[1], y.dtype};
  DeviceMatrix sum = to;
  if (more) sum.type = graph::DType::kFloat32;
  RING_ASSIGN_OR_RETURN(Matmul product, BindMatmul(context));
  return std::make_unique<DenseKernel>(std::move(product), activation, sum, to);
}

StatusOr<std::unique_ptr<Kernel>> BindDenseInputGradient(const BindContext& context) {
  RING_ASSIGN_OR_RETURN(Matmul product, BindMatmul(context));
  const size_t workspace = product.workspace_bytes();
  return MakeLaunch(
      [product = std::move(product)](const Operands& operands, cudaStream_t stream) {
        return product.Launch({operands.input<void>(0), operands.input<void>(1),
                               operands.output<void>(0), operands.workspace},
                              stream);
      },
      workspace);
}

// dw = x^T dy, of a conv2d dy^T x, whose kernels are O,h,w,I; db = sum over rows of dy.
StatusOr<std::unique_ptr<Kernel>> BindDenseWeightGradient(const BindContext& context) {
  const graph::Value& dy = context.input(1);
  const bool bias = context.node.outputs.size() > 1;
  const int64_t columns = dy.shape.back();
  const DeviceMatrix rows = {nullptr, graph::Elements(dy.shape) / columns, columns, dy.dtype};
  const size_t a = context.node.as<graph::Conv2dWeightGradient>() != nullptr ? 1 : 0;
  RING_ASSIGN_OR_RETURN(Matmul product, BindMatmul(context));
  WorkspaceLayout layout;
  const size_t product_offset = layout.Add(product.workspace_bytes());
  const size_t sums_offset = layout.Add(bias ? ColumnSumWorkspace(rows) : 0);
  return MakeLaunch(
      [=, product = std::move(product)](const Operands& operands, cudaStream_t stream) {
        RING_RETURN_IF_ERROR(
            product.Launch({operands.input<void>(a), operands.input<void>(1 - a),
                            operands.output<void>(0), operands.workspace + product_offset},
                           stream));
        if (!bias) return absl::OkStatus();
        DeviceMatrix from = rows;
        from.data = const_cast<void*>(operands.input<void>(1));
        return SumColumns(from, operands.workspace + sums_offset, operands.output<float>(1),
                          stream);
      },
      layout.bytes());
}

// conv2d and its gradients by cuDNN's graph API, on N,H,W,C and the canonical O,H,W,I of kernels;
// depthwise ones by own kernels; as products by cuBLASLt where they are one, or where an image has
// few channels.

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

// What cuBLASLt is given: whole operands, pieces of a workspace, and parts of y that PatchProductOf
// cuts.
static_assert(kAlignment % kProductAlignment == 0);

// y = patches w^T, or dw = dy^T patches, over parts of the samples in their order. Kernels and
// their gradients are copied, so that their rows are as long as the patches'.
class PatchKernel final : public Kernel {
 public:
  PatchKernel(const ConvolutionShape& shape, const PatchProduct& product, Matmul matmul,
              BiasGradient bias_gradient)
      : forward_(shape.pass == ConvolutionPass::kForward),
        parts_(product.parts),
        patch_shape_(product.patches),
        matmul_(std::move(matmul)),
        sums_bias_(bias_gradient == BiasGradient::kWanted) {
    const int64_t image = shape.height * shape.width * shape.channels;
    const auto bytes = static_cast<int64_t>(graph::ByteSize(shape.type));
    x_bytes_ = patch_shape_.samples * image * bytes;
    y_bytes_ = product.rows() * shape.filters * bytes;
    y_ = {nullptr, parts_ * product.rows(), shape.filters, shape.type};
    const graph::DType type = forward_ ? shape.type : shape.result;
    const int64_t window = shape.window_height * shape.window_width * shape.channels;
    w_ = {nullptr, shape.filters, window, type};
    wide_w_ = {nullptr, shape.filters, patch_shape_.columns, type};
    patches_offset_ =
        layout_.Add(static_cast<size_t>(product.rows() * patch_shape_.columns * bytes));
    w_offset_ = layout_.Add(wide_w_.bytes());
    matmul_offset_ = layout_.Add(matmul_.workspace_bytes());
    sums_offset_ = layout_.Add(sums_bias_ ? ColumnSumWorkspace(y_) : 0);
  }

  [[nodiscard]] size_t workspace_bytes() const override { return layout_.bytes(); }

  Status Attach(const Operands& operands) override {
    std::byte* const workspace = operands.workspace;
    x_ = operands.input<std::byte>(0);
    void* const second = const_cast<void*>(operands.inputs[1]);
    y_.data = forward_ ? operands.outputs[0] : second;
    w_.data = forward_ ? second : operands.outputs[0];
    wide_w_.data = workspace + w_offset_;
    patches_ = workspace + patches_offset_;
    scratch_ = workspace + matmul_offset_;
    sums_ = workspace + sums_offset_;
    bias_gradient_ = sums_bias_ ? operands.output<float>(1) : nullptr;
    return absl::OkStatus();
  }

  Status Launch(cudaStream_t stream) override {
    if (forward_) RING_RETURN_IF_ERROR(Resize(w_, wide_w_, stream));
    for (int64_t part = 0; part < parts_; ++part) {
      RING_RETURN_IF_ERROR(
          FromCuda(LaunchPatches(patch_shape_, x_ + part * x_bytes_, patches_, stream), "patches"));
      std::byte* const y = static_cast<std::byte*>(y_.data) + part * y_bytes_;
      const MatmulOperands operands = forward_
                                          ? MatmulOperands{patches_, wide_w_.data, y, scratch_}
                                          : MatmulOperands{y, patches_, wide_w_.data, scratch_};
      const bool adds = !forward_ && part > 0;
      RING_RETURN_IF_ERROR(
          matmul_.Launch(operands, stream, adds ? Matmul::Result::kAdd : Matmul::Result::kWrite));
    }
    if (forward_) return absl::OkStatus();
    RING_RETURN_IF_ERROR(Resize(wide_w_, w_, stream));
    return sums_bias_ ? SumColumns(y_, sums_, bias_gradient_, stream) : absl::OkStatus();
  }

 private:
  const bool forward_;
  const int64_t parts_;
  const PatchShape patch_shape_;
  const Matmul matmul_;
  const bool sums_bias_;
  int64_t x_bytes_ = 0, y_bytes_ = 0;  // of a part
  DeviceMatrix y_, w_, wide_w_;
  WorkspaceLayout layout_;
  size_t patches_offset_ = 0, w_offset_ = 0, matmul_offset_ = 0, sums_offset_ = 0;
  const std::byte* x_ = nullptr;
  void *patches_ = nullptr, *scratch_ = nullptr, *sums_ = nullptr;
  float* bias_gradient_ = nullptr;
};

StatusOr<std::unique_ptr<Kernel>> MakePatchKernel(const BindContext& context,
                                                  const ConvolutionShape& shape,
                                                  const PatchProduct& product,
                                                  BiasGradient bias_gradient) {
  const bool forward = shape.pass == ConvolutionPass::kForward;
  const int64_t columns = product.patches.columns;
  const MatmulShape matmul = {.m = forward ? product.rows() : shape.filters,
                              .n = forward ? shape.filters : columns,
                              .k = forward ? columns : product.rows(),
                              .transpose_a = !forward,
                              .transpose_b = forward,
                              .type = shape.type,
                              .result = shape.result};
  auto made = Matmul::Create(context.device.cublas_lt(), matmul, nullptr);
  if (!made.ok()) return Annotate(made.status(), context.node.name);
  return std::make_unique<PatchKernel>(shape, product, *std::move(made), bias_gradient);
}

StatusOr<std::unique_ptr<Kernel>> BindConvolution(const BindContext& context) {
  const graph::Node& node = context.node;
  if (MatmulOf(context.program.graph, node)) return BindDenseWeightGradient(context);
  const auto shape = ConvolutionOf(context.program.graph, node);
  if (!shape) return Internal("{}: {} is no convolution", node.name, node.op());
  const BiasGradient bias_gradient =
      node.outputs.size() > 1 ? BiasGradient::kWanted : BiasGradient::kNone;
  if (shape->is_depthwise()) return MakeDepthwiseKernel(node.name, *shape, bias_gradient);
  if (const auto product = PatchProductOf(*shape)) {
    return MakePatchKernel(context, *shape, *product, bias_gradient);
  }
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
