// dropout over samples, by masks drawn while it runs. T: float, __nv_bfloat16, __half.
#pragma once

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>

#include "common/host_device.h"
#include "worker/backend/cuda/kernels/stream_key.h"

namespace ringmaster::cuda {

// Which elements dropout keeps, and what becomes of them: the CPU backend's arithmetic. For kernels
// and for host code; thread-safe (values and free functions).
struct DropoutMask {
  uint32_t threshold;  // an element is kept when the upper 24 of its bits reach this
  float divisor;       // 1 - rate
  bool per_sample;     // element 0 of a sample decides for all of it
};

// Uniform() is an integer times 2^-24, so comparing integers is the same comparison.
inline DropoutMask MakeDropoutMask(double rate, bool per_sample) {
  return {static_cast<uint32_t>(std::ceil(rate * 0x1p24)), static_cast<float>(1 - rate),
          per_sample};
}

RING_HOST_DEVICE inline float Drop(const DropoutMask& mask, uint32_t bits, float x) {
  return (bits >> 8) >= mask.threshold ? x / mask.divisor : 0.0F;
}

// keys[row] = the stream of that row's sample.
cudaError_t LaunchStreamKeys(const StreamName& name, uint64_t purpose,
                             const uint64_t* seed_and_step, const uint64_t* samples,
                             StreamKey* keys, int64_t rows, cudaStream_t stream);

// y may be x.
template <typename T>
cudaError_t LaunchDropout(const DropoutMask& mask, const StreamKey* keys, const T* x, T* y,
                          int64_t rows, int64_t row_elements, cudaStream_t stream);

}  // namespace ringmaster::cuda
