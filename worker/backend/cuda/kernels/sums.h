// Sums over threads, each in one fixed order. For .cu files only.
#pragma once

#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/packs.h"

namespace ringmaster::cuda {

inline constexpr int kSumThreads = 256;

// Over a warp, by halves; every lane has it.
template <typename T>
__device__ T SumOverWarp(T sum) {
  for (int half = kWarpLanes / 2; half > 0; half /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, half);
  }
  return sum;
}

// Over a block of kThreads, a power of two, by halves; thread 0 has it. Once in a kernel.
template <int kThreads>
__device__ double SumOverBlock(double sum) {
  __shared__ double sums[kThreads];
  const unsigned mine = threadIdx.x;
  sums[mine] = sum;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (mine < half) sums[mine] += sums[mine + half];
  }
  return sums[mine];
}

// One block: each thread adds values in their order.
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    SumOverAll(int64_t count, const double* __restrict__ values, double divisor,
               float* __restrict__ whole) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += values[i];
  sum = SumOverBlock<kThreads>(sum);
  if (threadIdx.x == 0) *whole = static_cast<float>(sum / divisor);
}

// whole = the sum of the values / divisor.
inline cudaError_t LaunchSum(int64_t count, const double* values, double divisor, float* whole,
                             cudaStream_t stream) {
  return Enqueue(SumOverAll<kSumThreads>, 1, dim3(kSumThreads), stream, count, values, divisor,
                 whole);
}

}  // namespace ringmaster::cuda
