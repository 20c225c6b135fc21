// The largest exponent of each tensor: maxima of integers, whose order does not matter.
#include "common/exact/arithmetic.h"
#include "worker/backend/cuda/launch.h"
#include "worker/backend/cuda/unit_kernels.h"

namespace ringmaster::cuda {
namespace {

constexpr int kTensorThreads = 1024;
constexpr int kExponentBatch = 8;  // exponents that a thread loads at once
constexpr int kFillThreads = 256;

// The largest of a block of threads' numbers, in all of them.
__device__ int LargestOfAll(int mine) {
  __shared__ int largest[kTensorThreads];
  largest[threadIdx.x] = mine;
  __syncthreads();
  for (unsigned half = kTensorThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half && largest[threadIdx.x + half] > largest[threadIdx.x]) {
      largest[threadIdx.x] = largest[threadIdx.x + half];
    }
    __syncthreads();
  }
  return largest[0];
}

// A block of threads takes a tensor.
__global__ void __launch_bounds__(kTensorThreads)
    ClampExponents(const uint32_t* __restrict__ first_blocks, int precision_bits,
                   int16_t* __restrict__ exponents) {
  const int64_t end = first_blocks[blockIdx.x + 1];
  const int64_t begin = static_cast<int64_t>(first_blocks[blockIdx.x]) + threadIdx.x;
  int largest = exact::ExponentOf(0);
#pragma unroll kExponentBatch
  for (int64_t b = begin; b < end; b += kTensorThreads) {
    largest = exponents[b] > largest ? exponents[b] : largest;
  }
  const int lowest = exact::LowestExponent(LargestOfAll(largest), precision_bits);
#pragma unroll kExponentBatch
  for (int64_t b = begin; b < end; b += kTensorThreads) {
    exponents[b] = exact::ClampExponent(exponents[b], lowest);
  }
}

__global__ void __launch_bounds__(kFillThreads)
    FillExponents(int16_t exponent, int64_t blocks, int16_t* __restrict__ exponents) {
  const int64_t b = static_cast<int64_t>(blockIdx.x) * kFillThreads + threadIdx.x;
  if (b < blocks) exponents[b] = exponent;
}

}  // namespace

cudaError_t LaunchClampExponents(const TensorBlocks& tensors, int precision_bits,
                                 int16_t* exponents, cudaStream_t stream) {
  return Enqueue(ClampExponents, tensors.count, dim3(kTensorThreads), stream, tensors.first_blocks,
                 precision_bits, exponents);
}

cudaError_t LaunchResetExponents(int64_t blocks, int precision_bits, int16_t* exponents,
                                 cudaStream_t stream) {
  const auto exponent = static_cast<int16_t>(precision_bits + exact::kSmallestUnitExponent);
  return Enqueue(FillExponents, CeilDiv(blocks, kFillThreads), dim3(kFillThreads), stream, exponent,
                 blocks, exponents);
}

}  // namespace ringmaster::cuda
