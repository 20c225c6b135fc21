// Pools and depthwise convolution, and their gradients.
#include <algorithm>
#include <limits>
#include <utility>

#include "common/graph/ops/window.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/kernels/windows.h"
#include "worker/backend/cuda/libraries/convolution_kernel.h"

namespace ringmaster::cuda {

// max_pool and its gradient over N,H,W,C.

namespace {

constexpr int64_t kMostOfRow = int64_t{1} << 29;

PoolAxis AxisOf(const graph::WindowAxis& axis) {
  return {static_cast<int>(axis.input), static_cast<int>(axis.output()),
          static_cast<int>(axis.window), static_cast<int>(axis.stride),
          static_cast<int>(axis.pad_low)};
}

// Kernels count what is in one row of x, and positions of an axis, with 32 bits.
StatusOr<PoolShape> PoolShapeOf(const BindContext& context, const graph::Shape& x) {
  const auto& a = context.attributes<graph::PoolAttributes>();
  const graph::WindowAxis height = graph::HeightAxis(a, x[1], a.window[0]);
  const graph::WindowAxis width = graph::WidthAxis(a, x[2], a.window[1]);
  const int64_t most =
      std::max({x[1], x[2] * x[3], height.stride, width.stride, height.window, width.window});
  if (most > kMostOfRow) {
    return Error(absl::StatusCode::kUnimplemented,
                 "{} ({}): the CUDA backend pools over rows of at most {} elements, got {}",
                 context.node.name, context.node.op(), kMostOfRow, most);
  }
  return PoolShape{x[0], x[3], AxisOf(height), AxisOf(width)};
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindMaxPool(const BindContext& context) {
  RING_ASSIGN_OR_RETURN(const PoolShape shape, PoolShapeOf(context, context.input(0).shape));
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeLaunch([shape](const Operands& operands, cudaStream_t stream) {
      return FromCuda(LaunchMaxPool(shape, operands.input<T>(0), operands.output<T>(0), stream),
                      "max_pool");
    });
  });
}

StatusOr<std::unique_ptr<Kernel>> BindMaxPoolGradient(const BindContext& context) {
  using Result = StatusOr<std::unique_ptr<Kernel>>;
  RING_ASSIGN_OR_RETURN(const PoolShape shape, PoolShapeOf(context, context.input(0).shape));
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) -> Result {
    if (!CanPoolGradient<T>(shape)) {
      return Error(absl::StatusCode::kUnimplemented,
                   "{} ({}): the CUDA backend does not train through windows of {} by {} positions "
                   "with strides of {} by {}, which overlap too far or are too large; expected "
                   "smaller windows, or strides as large as the windows and no padding",
                   context.node.name, context.node.op(), shape.height.window, shape.width.window,
                   shape.height.stride, shape.width.stride);
    }
    return MakeLaunch([shape](const Operands& operands, cudaStream_t stream) {
      return FromCuda(LaunchMaxPoolGradient(shape, operands.input<T>(0), operands.input<T>(1),
                                            operands.input<T>(2), operands.output<T>(0), stream),
                      "max_pool_gradient");
    });
  });
}

// average_pool and its gradient.

StatusOr<std::unique_ptr<Kernel>> BindAveragePool(const BindContext& context) {
  RING_ASSIGN_OR_RETURN(const PoolShape shape, PoolShapeOf(context, context.input(0).shape));
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeLaunch([shape](const Operands& operands, cudaStream_t stream) {
      return FromCuda(LaunchAveragePool(shape, operands.input<T>(0), operands.output<T>(0), stream),
                      "average_pool");
    });
  });
}

StatusOr<std::unique_ptr<Kernel>> BindAveragePoolGradient(const BindContext& context) {
  RING_ASSIGN_OR_RETURN(const PoolShape shape, PoolShapeOf(context, context.output(0).shape));
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLaunch([shape](const Operands& operands, cudaStream_t stream) {
      return FromCuda(
          LaunchAveragePoolGradient(shape, operands.input<T>(0), operands.output<T>(0), stream),
          "average_pool_gradient");
    });
  });
}

// global_max_pool, whose gradient is a max_pool's; global_average_pool and its gradient.

namespace {

// Of x, or of dx.
ImageShape ImageShapeOf(const graph::Value& x) {
  return {x.shape[0], x.shape[1] * x.shape[2], x.shape[3]};
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindGlobalMaxPool(const BindContext& context) {
  const ImageShape shape = ImageShapeOf(context.input(0));
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeLaunch([shape](const Operands& operands, cudaStream_t stream) {
      return FromCuda(
          LaunchGlobalMaxPool(shape, operands.input<T>(0), operands.output<T>(0), stream),
          "global_max_pool");
    });
  });
}

StatusOr<std::unique_ptr<Kernel>> BindGlobalAveragePool(const BindContext& context) {
  const ImageShape shape = ImageShapeOf(context.input(0));
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeLaunch([shape](const Operands& operands, cudaStream_t stream) {
      return FromCuda(
          LaunchGlobalAveragePool(shape, operands.input<T>(0), operands.output<T>(0), stream),
          "global_average_pool");
    });
  });
}

StatusOr<std::unique_ptr<Kernel>> BindGlobalAveragePoolGradient(const BindContext& context) {
  const ImageShape shape = ImageShapeOf(context.output(0));
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLaunch([shape](const Operands& operands, cudaStream_t stream) {
      return FromCuda(LaunchGlobalAveragePoolGradient(shape, operands.input<T>(0),
                                                      operands.output<T>(0), stream),
                      "global_average_pool_gradient");
    });
  });
}

// Depthwise conv2d and its gradients by own kernels: cuDNN has few engines for them in N,H,W,C, and
// not all give the same bits on every run. The table of kernels has no rows for them.

namespace {

// Positions are ints on the GPU, those in the padding, too.
constexpr int64_t kMostPositions = std::numeric_limits<int>::max() / 4;

bool FitsInts(const graph::WindowAxis& axis) {
  return axis.input < kMostPositions && axis.extent() < kMostPositions &&
         axis.stride < kMostPositions;
}

DepthwiseAxis DepthwiseAxisOf(const graph::WindowAxis& axis) {
  const auto narrow = [](int64_t value) { return static_cast<int>(value); };
  return {narrow(axis.input),   narrow(axis.window),   narrow(axis.stride),
          narrow(axis.pad_low), narrow(axis.dilation), narrow(axis.output())};
}

class DepthwiseEngine final : public ConvolutionEngine {
 public:
  explicit DepthwiseEngine(const ConvolutionShape& shape)
      : pass_(shape.pass),
        type_(shape.type),
        relu_(shape.attributes.activation == graph::Activation::kRelu),
        bias_(shape.bias),
        shape_{shape.samples, shape.channels, shape.filters / shape.channels,
               DepthwiseAxisOf(shape.rows()), DepthwiseAxisOf(shape.columns())} {}

  [[nodiscard]] size_t workspace_bytes() const override {
    if (pass_ != ConvolutionPass::kWeightGradient) return 0;
    return DepthwiseWorkspace(shape_, graph::ByteSize(type_));
  }
  [[nodiscard]] Status Attach(std::span<const ConvolutionOperands> parts) override {
    operands_ = parts.front();  // it takes any number of samples
    return absl::OkStatus();
  }
  [[nodiscard]] Status Launch(size_t, cudaStream_t stream) override {
    const cudaError_t error =
        WithStorage(type_, [&]<typename T>(T) { return LaunchPass<T>(stream); });
    return FromCuda(error, Name(pass_));
  }

 private:
  template <typename T>
  cudaError_t LaunchPass(cudaStream_t stream) const {
    auto* const x = static_cast<T*>(operands_.x);
    auto* const y = static_cast<T*>(operands_.y);
    switch (pass_) {
      case ConvolutionPass::kForward:
        break;
      case ConvolutionPass::kInputGradient:
        return LaunchDepthwiseInputGradient(shape_, y, static_cast<const T*>(operands_.w), x,
                                            stream);
      case ConvolutionPass::kWeightGradient:
        return LaunchDepthwiseWeightGradient(shape_, x, y, static_cast<float*>(operands_.w),
                                             operands_.workspace, stream);
    }
    return LaunchDepthwise(shape_, x, static_cast<const T*>(operands_.w),
                           bias_ ? static_cast<const float*>(operands_.bias) : nullptr, relu_, y,
                           stream);
  }

  const ConvolutionPass pass_;
  const graph::DType type_;
  const bool relu_, bias_;
  const DepthwiseShape shape_;
  ConvolutionOperands operands_;
};

}  // namespace

StatusOr<std::unique_ptr<Kernel>> MakeDepthwiseKernel(std::string name,
                                                      const ConvolutionShape& shape,
                                                      BiasGradient bias_gradient) {
  if (!FitsInts(shape.rows()) || !FitsInts(shape.columns())) {
    return Error(absl::StatusCode::kUnimplemented,
                 "{}: the CUDA backend has no kernel for images of {} by {}", name, shape.height,
                 shape.width);
  }
  return MakeConvolutionKernel(
      std::move(name), {.shape = shape,
                        .library = {{.fused = true}, std::make_unique<DepthwiseEngine>(shape)},
                        .bias_gradient = bias_gradient});
}

}  // namespace ringmaster::cuda
