// relu and its gradient, which masks by the output. NaN passes, so that it reaches the loss.
#include "worker/backend/cuda/cuda_status.h"
#include "worker/backend/cuda/kernel_table.h"
#include "worker/backend/cuda/relu_kernels.h"
#include "worker/backend/cuda/storage.h"

namespace ringmaster::cuda {

StatusOr<std::unique_ptr<Kernel>> BindRelu(const BindContext& context) {
  const int64_t count = graph::Elements(context.output(0).shape);
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLaunch([count](const Operands& operands, cudaStream_t stream) {
      return FromCuda(LaunchRelu(operands.input<T>(0), operands.output<T>(0), count, stream),
                      "relu");
    });
  });
}

StatusOr<std::unique_ptr<Kernel>> BindReluGradient(const BindContext& context) {
  const int64_t count = graph::Elements(context.output(0).shape);
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLaunch([count](const Operands& operands, cudaStream_t stream) {
      return FromCuda(LaunchReluGradient(operands.input<T>(0), operands.input<T>(1),
                                         operands.output<T>(0), count, stream),
                      "relu_gradient");
    });
  });
}

}  // namespace ringmaster::cuda
