// Stands in for worker/backend/cuda/kernels/launch.h where a host's compiler compiles kernels for
// the block emulator: CUDA's words mean what a fiber does.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "tests/worker/backend/cuda/emulation/block_emulator.h"
#include "tests/worker/backend/cuda/late_runtime.h"

#undef __global__
#undef __device__
#undef __shared__
#undef __launch_bounds__
#define __global__
#define __device__
#define __shared__ static  // blocks run one after the other
#define __launch_bounds__(...)
#define threadIdx (::ringmaster::testing::CurrentThread().thread)
#define blockIdx (::ringmaster::testing::CurrentThread().block)
#define blockDim (::ringmaster::testing::CurrentThread().block_size)
#define gridDim (::ringmaster::testing::CurrentThread().grid_size)
#define __syncthreads ::ringmaster::testing::SyncBlock
#define __syncwarp ::ringmaster::testing::SyncWarp
#define __syncthreads_or ::ringmaster::testing::SyncBlockOr
#define __shfl_xor_sync ::ringmaster::testing::ShuffleXor
#define atomicAdd ::ringmaster::testing::AtomicAdd
#define atomicMin ::ringmaster::testing::AtomicMin
#define __clzll(x) std::countl_zero(static_cast<unsigned long long>(x))

namespace ringmaster::cuda {

// Every word of an argument that may be a pointer: a parameter may be a structure of some.
template <typename... Arguments>
testing::KernelCall CallOf(const void* kernel, const Arguments&... arguments) {
  testing::KernelCall call = {kernel, {}};
  size_t parameter = 0;
  const auto add = [&](const void* argument, size_t bytes) {
    for (size_t at = 0; at + sizeof(uintptr_t) <= bytes; at += sizeof(uintptr_t)) {
      uintptr_t word = 0;
      std::memcpy(&word, static_cast<const char*>(argument) + at, sizeof(word));
      call.pointers.push_back({parameter, word});
    }
    ++parameter;
  };
  (add(&arguments, sizeof(arguments)), ...);
  return call;
}

template <typename... Parameters, typename... Arguments>
cudaError_t Enqueue(void (*kernel)(Parameters...), int64_t blocks, dim3 block, cudaStream_t stream,
                    Arguments... arguments) {
  if (blocks < 0 || blocks > INT32_MAX || block.x * block.y * block.z > 1024) {
    return cudaErrorInvalidConfiguration;
  }
  if (blocks == 0) return cudaSuccess;
  return testing::LaunchOnHost(stream, [=] {
    const testing::KernelCall call =
        CallOf(reinterpret_cast<const void*>(kernel), Parameters(arguments)...);
    testing::RunGrid(call, dim3(static_cast<unsigned>(blocks)), block,
                     [&] { kernel(arguments...); });
  });
}

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace ringmaster::cuda
