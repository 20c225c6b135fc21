// dense, conv2d and their gradients, by libraries' engines.
#include <memory>
#include <utility>

#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/libraries/convolution_kernel.h"

namespace ringmaster::cuda {

// dense and its gradients by cuBLASLt, on the canonical I,O layout of kernels, and what else is one
// product (MatmulOf). Bias, activation and the gradient of the bias are own kernels: a 16-bit
// product with a bias is written in float32 first, so that y is rounded once.

namespace {

using Product = std::unique_ptr<MatmulEngine>;

// Of a node that is one.
StatusOr<Product> BindMatmul(const BindContext& context) {
  const auto shape = MatmulOf(context.program.graph, context.node);
  if (!shape) return Internal("{}: {} is no product", context.node.name, context.node.op());
  auto made = MakeMatmulEngine(context, *shape);
  if (!made.ok()) return Annotate(made.status(), context.node.name);
  return made;
}

// y = activation(x w + b)
class DenseKernel final : public Kernel {
 public:
  // `sum`: where the product goes, the workspace or y.
  DenseKernel(Product product, graph::Activation activation, const DeviceMatrix& sum,
              const DeviceMatrix& y)
      : product_(std::move(product)), activation_(activation), sum_(sum), y_(y) {
    product_offset_ = layout_.Add(product_->workspace_bytes());
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
    RING_RETURN_IF_ERROR(product_->Launch(matrices_, MatmulResult::kWrite, stream));
    if (bias_ == nullptr && activation_ == graph::Activation::kNone) return absl::OkStatus();
    return AddBias(sum_, bias_, activation_, y_, stream);
  }

 private:
  const Product product_;
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
  RING_ASSIGN_OR_RETURN(Product product, BindMatmul(context));
  return std::make_unique<DenseKernel>(std::move(product), activation, sum, to);
}

StatusOr<std::unique_ptr<Kernel>> BindDenseInputGradient(const BindContext& context) {
  RING_ASSIGN_OR_RETURN(Product product, BindMatmul(context));
  const size_t workspace = product->workspace_bytes();
  return MakeLaunch(
      [product = std::move(product)](const Operands& operands, cudaStream_t stream) {
        return product->Launch({operands.input<void>(0), operands.input<void>(1),
                                operands.output<void>(0), operands.workspace},
                               MatmulResult::kWrite, stream);
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
  RING_ASSIGN_OR_RETURN(Product product, BindMatmul(context));
  WorkspaceLayout layout;
  const size_t product_offset = layout.Add(product->workspace_bytes());
  const size_t sums_offset = layout.Add(bias ? ColumnSumWorkspace(rows) : 0);
  return MakeLaunch(
      [=, product = std::move(product)](const Operands& operands, cudaStream_t stream) {
        RING_RETURN_IF_ERROR(
            product->Launch({operands.input<void>(a), operands.input<void>(1 - a),
                             operands.output<void>(0), operands.workspace + product_offset},
                            MatmulResult::kWrite, stream));
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

StatusOr<std::unique_ptr<Kernel>> BindConvolution(const BindContext& context) {
  const graph::Node& node = context.node;
  const auto shape = ConvolutionOf(context.program.graph, node);
  if (!shape) return Internal("{}: {} is no convolution", node.name, node.op());
  const BiasGradient bias_gradient =
      node.outputs.size() > 1 ? BiasGradient::kWanted : BiasGradient::kNone;
  if (shape->is_depthwise()) return MakeDepthwiseKernel(node.name, *shape, bias_gradient);
  if (const auto product = PatchProductOf(*shape)) {
    RING_ASSIGN_OR_RETURN(Product engine, BindMatmul(context));
    return MakePatchKernel(*shape, *product, std::move(engine), bias_gradient);
  }
  if (MatmulOf(context.program.graph, node)) return BindDenseWeightGradient(context);
  auto library = MakeConvolutionEngine(context);
  if (!library.ok()) return Annotate(library.status(), node.name);
  return MakeConvolutionKernel(node.name, {.shape = *shape,
                                           .parts = PartsOf(*shape),
                                           .library = *std::move(library),
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
