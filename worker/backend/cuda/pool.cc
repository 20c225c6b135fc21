#include <algorithm>

#include "common/graph/ops/window.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/kernel_table.h"
#include "worker/backend/cuda/kernels/windows.h"

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
  RING_ASSIGN_OR_RETURN(const PoolShape shape, PoolShapeOf(context, context.input(0).shape));
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
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

}  // namespace ringmaster::cuda
