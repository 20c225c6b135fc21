#include "worker/backend/cuda/kernels/unary.h"

#include "worker/backend/cuda/kernels/elementwise.h"

namespace ringmaster::cuda {
namespace {

struct Relu {
  __device__ float operator()(float x) const { return x <= 0 ? 0.0F : x; }
};

struct ReluGradient {
  __device__ float operator()(float y, float dy) const { return y <= 0 ? 0.0F : dy; }
};

}  // namespace

template <typename T>
cudaError_t LaunchRelu(const T* x, T* y, int64_t count, cudaStream_t stream) {
  return LaunchMap(x, y, count, Relu{}, stream);
}

template <typename T>
cudaError_t LaunchReluGradient(const T* y, const T* dy, T* dx, int64_t count, cudaStream_t stream) {
  return LaunchMap(y, dy, dx, count, ReluGradient{}, stream);
}

template cudaError_t LaunchRelu(const float*, float*, int64_t, cudaStream_t);
template cudaError_t LaunchRelu(const __nv_bfloat16*, __nv_bfloat16*, int64_t, cudaStream_t);
template cudaError_t LaunchRelu(const __half*, __half*, int64_t, cudaStream_t);
template cudaError_t LaunchReluGradient(const float*, const float*, float*, int64_t, cudaStream_t);
template cudaError_t LaunchReluGradient(const __nv_bfloat16*, const __nv_bfloat16*, __nv_bfloat16*,
                                        int64_t, cudaStream_t);
template cudaError_t LaunchReluGradient(const __half*, const __half*, __half*, int64_t,
                                        cudaStream_t);

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
