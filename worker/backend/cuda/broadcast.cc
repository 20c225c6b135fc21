// add: y = a + b, element by element.
#include "worker/backend/cuda/kernels/broadcast.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/kernel_table.h"

namespace ringmaster::cuda {

StatusOr<std::unique_ptr<Kernel>> BindAdd(const BindContext& context) {
  const int64_t count = graph::Elements(context.output(0).shape);
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLaunch([count](const Operands& operands, cudaStream_t stream) {
      return FromCuda(LaunchAdd(operands.input<T>(0), operands.input<T>(1), operands.output<T>(0),
                                count, stream),
                      "add");
    });
  });
}

}  // namespace ringmaster::cuda
