// add: y = a + b, element by element.
#include "worker/backend/cuda/add_kernels.h"
#include "worker/backend/cuda/cuda_status.h"
#include "worker/backend/cuda/kernel_table.h"
#include "worker/backend/cuda/storage.h"

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
