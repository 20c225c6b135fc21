#include "worker/backend/cuda/kernels/broadcast.h"

#include "worker/backend/cuda/kernels/elementwise.h"

namespace ringmaster::cuda {
namespace {

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};

}  // namespace

template <typename T>
cudaError_t LaunchAdd(const T* a, const T* b, T* y, int64_t count, cudaStream_t stream) {
  return LaunchMap(a, b, y, count, Sum{}, stream);
}

template cudaError_t LaunchAdd(const float*, const float*, float*, int64_t, cudaStream_t);
template cudaError_t LaunchAdd(const __nv_bfloat16*, const __nv_bfloat16*, __nv_bfloat16*, int64_t,
                               cudaStream_t);
template cudaError_t LaunchAdd(const __half*, const __half*, __half*, int64_t, cudaStream_t);

}  // namespace ringmaster::cuda
