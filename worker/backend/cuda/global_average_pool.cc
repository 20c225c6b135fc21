// global_average_pool and its gradient.
#include "worker/backend/cuda/cuda_status.h"
#include "worker/backend/cuda/global_average_pool_kernels.h"
#include "worker/backend/cuda/kernel_table.h"
#include "worker/backend/cuda/storage.h"

namespace ringmaster::cuda {
namespace {

// Of x, or of dx.
AverageShape AverageShapeOf(const graph::Value& x) {
  return {x.shape[0], x.shape[1] * x.shape[2], x.shape[3]};
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindGlobalAveragePool(const BindContext& context) {
  const AverageShape shape = AverageShapeOf(context.input(0));
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeLaunch([shape](const Operands& operands, cudaStream_t stream) {
      return FromCuda(
          LaunchGlobalAveragePool(shape, operands.input<T>(0), operands.output<T>(0), stream),
          "global_average_pool");
    });
  });
}

StatusOr<std::unique_ptr<Kernel>> BindGlobalAveragePoolGradient(const BindContext& context) {
  const AverageShape shape = AverageShapeOf(context.output(0));
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLaunch([shape](const Operands& operands, cudaStream_t stream) {
      return FromCuda(LaunchGlobalAveragePoolGradient(shape, operands.input<T>(0),
                                                      operands.output<T>(0), stream),
                      "global_average_pool_gradient");
    });
  });
}

}  // namespace ringmaster::cuda
