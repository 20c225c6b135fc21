#include "worker/backend/cuda/kernels/dropout.h"

#include "worker/backend/cuda/kernels/elementwise.h"

namespace ringmaster::cuda {
namespace {

constexpr int kKeyThreads = 64;
constexpr int kDropThreads = 256;
constexpr int kGroup = 8;  // elements of one thread: two blocks of the stream

__global__ void __launch_bounds__(kKeyThreads)
    MakeStreamKeys(StreamName name, uint64_t purpose, const uint64_t* __restrict__ seed_and_step,
                   const uint64_t* __restrict__ samples, StreamKey* __restrict__ keys,
                   int64_t rows) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kKeyThreads + threadIdx.x;
  if (row >= rows) return;
  keys[row] = MakeStreamKey(name, seed_and_step[0], purpose, seed_and_step[1], samples[row]);
}

// A row is `blocks` blocks of threads, each thread a group; kVector: groups are whole and aligned.
template <typename T, bool kVector>
__global__ void __launch_bounds__(kDropThreads)
    DropGroups(DropoutMask mask, const StreamKey* __restrict__ keys, const T* x, T* y,
               int64_t row_elements, unsigned blocks) {
  const int64_t row = blockIdx.x / blocks;
  const int64_t group = static_cast<int64_t>(blockIdx.x % blocks) * blockDim.x + threadIdx.x;
  const int64_t first = group * kGroup;
  if (first >= row_elements) return;
  const T* from = x + row * row_elements;
  const Pack<T, kGroup> in =
      kVector ? LoadPack<kGroup>(from + first) : LoadEach<kGroup>(from, first, row_elements);
  const StreamKey key = keys[row];
  Pack<T, kGroup> out;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t block = mask.per_sample ? 0 : 2 * group + half;
    const StreamWords bits = StreamBlock(key, static_cast<uint64_t>(block));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t own = mask.per_sample ? bits.x[0] : bits.x[i];
      out.set(4 * half + i, Drop(mask, own, in.get(4 * half + i)));
    }
  }
  T* to = y + row * row_elements;
  if (kVector) {
    StorePack<kGroup>(out, to + first);
  } else {
    StoreEach<kGroup>(out, to, first, row_elements);
  }
}

}  // namespace

cudaError_t LaunchStreamKeys(const StreamName& name, uint64_t purpose,
                             const uint64_t* seed_and_step, const uint64_t* samples,
                             StreamKey* keys, int64_t rows, cudaStream_t stream) {
  return Enqueue(MakeStreamKeys, CeilDiv(rows, kKeyThreads), dim3(kKeyThreads), stream, name,
                 purpose, seed_and_step, samples, keys, rows);
}

template <typename T>
cudaError_t LaunchDropout(const DropoutMask& mask, const StreamKey* keys, const T* x, T* y,
                          int64_t rows, int64_t row_elements, cudaStream_t stream) {
  const int64_t groups = CeilDiv(row_elements, kGroup);
  // Whole warps, few of them for a short row.
  const int64_t threads = groups < kDropThreads ? CeilDiv(groups, 32) * 32 : kDropThreads;
  const int64_t blocks = CeilDiv(groups, threads);
  const auto kernel = row_elements % kGroup == 0 ? DropGroups<T, true> : DropGroups<T, false>;
  return Enqueue(kernel, rows * blocks, dim3(static_cast<unsigned>(threads)), stream, mask, keys, x,
                 y, row_elements, static_cast<unsigned>(blocks));
}

template cudaError_t LaunchDropout(const DropoutMask&, const StreamKey*, const float*, float*,
                                   int64_t, int64_t, cudaStream_t);
template cudaError_t LaunchDropout(const DropoutMask&, const StreamKey*, const __nv_bfloat16*,
                                   __nv_bfloat16*, int64_t, int64_t, cudaStream_t);
template cudaError_t LaunchDropout(const DropoutMask&, const StreamKey*, const __half*, __half*,
                                   int64_t, int64_t, cudaStream_t);

}  // namespace ringmaster::cuda
