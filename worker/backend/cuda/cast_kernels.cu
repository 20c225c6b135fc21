#include "worker/backend/cuda/cast_kernels.h"

#include "worker/backend/cuda/elementwise.h"

namespace ringmaster::cuda {
namespace {

struct Same {
  __device__ float operator()(float x) const { return x; }
};

}  // namespace

template <typename From, typename To>
cudaError_t LaunchCast(const From* x, To* y, int64_t count, cudaStream_t stream) {
  return LaunchMap(x, y, count, Same{}, stream);
}

template cudaError_t LaunchCast(const float*, float*, int64_t, cudaStream_t);
template cudaError_t LaunchCast(const float*, __nv_bfloat16*, int64_t, cudaStream_t);
template cudaError_t LaunchCast(const float*, __half*, int64_t, cudaStream_t);
template cudaError_t LaunchCast(const __nv_bfloat16*, float*, int64_t, cudaStream_t);
template cudaError_t LaunchCast(const __nv_bfloat16*, __nv_bfloat16*, int64_t, cudaStream_t);
template cudaError_t LaunchCast(const __nv_bfloat16*, __half*, int64_t, cudaStream_t);
template cudaError_t LaunchCast(const __half*, float*, int64_t, cudaStream_t);
template cudaError_t LaunchCast(const __half*, __nv_bfloat16*, int64_t, cudaStream_t);
template cudaError_t LaunchCast(const __half*, __half*, int64_t, cudaStream_t);

}  // namespace ringmaster::cuda
