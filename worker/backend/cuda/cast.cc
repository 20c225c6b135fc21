// cast between float32, bfloat16 and float16, rounded half to even.
#include "worker/backend/cuda/cast_kernels.h"
#include "worker/backend/cuda/cuda_status.h"
#include "worker/backend/cuda/kernel_table.h"
#include "worker/backend/cuda/storage.h"

namespace ringmaster::cuda {
namespace {

template <typename From, typename To>
std::unique_ptr<Kernel> MakeCast(int64_t count) {
  return MakeLaunch([count](const Operands& operands, cudaStream_t stream) {
    return FromCuda(LaunchCast(operands.input<From>(0), operands.output<To>(0), count, stream),
                    "cast");
  });
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindCast(const BindContext& context) {
  const graph::Value& x = context.input(0);
  const graph::Value& y = context.output(0);
  if (x.dtype == graph::DType::kInt32 || y.dtype == graph::DType::kInt32) {
    return Error(
        absl::StatusCode::kUnimplemented,
        "{} (cast): the CUDA backend casts between float32, bfloat16 and float16, not {} to {}",
        context.node.name, graph::Name(x.dtype), graph::Name(y.dtype));
  }
  const int64_t count = graph::Elements(x.shape);
  return WithStorage(x.dtype, [&]<typename From>(From) {
    return WithStorage(y.dtype, [&]<typename To>(To) { return MakeCast<From, To>(count); });
  });
}

}  // namespace ringmaster::cuda
