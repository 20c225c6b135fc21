// Kernels that make y[i] from the inputs' i-th elements alone, for any arrays that begin at a
// multiple of kAlignment. For .cu files only. An input may be y itself: a thread reads all that it
// needs before it writes, and reads nothing that another one writes.
#pragma once

#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/packs.h"

namespace ringmaster::cuda {

inline constexpr int kElementwiseThreads = 256;
inline constexpr int kElementwisePacks = 4;  // of one thread

// The widest pack for which neither type needs more than two 16-byte accesses.
template <typename X, typename Y>
inline constexpr int kElementwiseWidth =
    kPackWidth<X> > kPackWidth<Y> ? kPackWidth<X> : kPackWidth<Y>;

// kWidth elements from `at`, at any address; those from `count` on are not touched.
template <int kWidth, typename T>
__device__ Pack<T, kWidth> LoadEach(const T* from, int64_t at, int64_t count) {
  Pack<T, kWidth> pack = {};
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    if (at + i < count) pack.elements[i] = from[at + i];
  }
  return pack;
}

template <int kWidth, typename T>
__device__ void StoreEach(const Pack<T, kWidth>& pack, T* to, int64_t at, int64_t count) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    if (at + i < count) to[at + i] = pack.elements[i];
  }
}

// The same, in one access where all of them are there.
template <int kWidth, typename T>
__device__ Pack<T, kWidth> LoadUpTo(const T* from, int64_t at, int64_t count) {
  if (at + kWidth <= count) return LoadPack<kWidth>(from + at);
  return LoadEach<kWidth>(from, at, count);
}

template <int kWidth, typename T>
__device__ void StoreUpTo(const Pack<T, kWidth>& pack, T* to, int64_t at, int64_t count) {
  if (at + kWidth <= count) {
    StorePack<kWidth>(pack, to + at);
  } else {
    StoreEach<kWidth>(pack, to, at, count);
  }
}

// First element of pack `i` of this thread: threads side by side read side by side.
template <int kWidth>
__device__ int64_t ElementwisePlace(int i) {
  const int64_t pack =
      (static_cast<int64_t>(blockIdx.x) * kElementwisePacks + i) * kElementwiseThreads +
      threadIdx.x;
  return pack * kWidth;
}

template <typename X, typename Y, typename Function>
__global__ void __launch_bounds__(kElementwiseThreads)
    MapOne(const X* x, Y* y, int64_t count, Function function) {
  constexpr int kWidth = kElementwiseWidth<X, Y>;
  Pack<X, kWidth> in[kElementwisePacks];
#pragma unroll
  for (int i = 0; i < kElementwisePacks; ++i) {
    in[i] = LoadUpTo<kWidth>(x, ElementwisePlace<kWidth>(i), count);
  }
#pragma unroll
  for (int i = 0; i < kElementwisePacks; ++i) {
    Pack<Y, kWidth> out;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) out.set(k, function(in[i].get(k)));
    StoreUpTo<kWidth>(out, y, ElementwisePlace<kWidth>(i), count);
  }
}

template <typename T, typename Function>
__global__ void __launch_bounds__(kElementwiseThreads)
    MapTwo(const T* a, const T* b, T* y, int64_t count, Function function) {
  constexpr int kWidth = kPackWidth<T>;
  Pack<T, kWidth> first[kElementwisePacks];
  Pack<T, kWidth> second[kElementwisePacks];
#pragma unroll
  for (int i = 0; i < kElementwisePacks; ++i) {
    first[i] = LoadUpTo<kWidth>(a, ElementwisePlace<kWidth>(i), count);
    second[i] = LoadUpTo<kWidth>(b, ElementwisePlace<kWidth>(i), count);
  }
#pragma unroll
  for (int i = 0; i < kElementwisePacks; ++i) {
    Pack<T, kWidth> out;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) out.set(k, function(first[i].get(k), second[i].get(k)));
    StoreUpTo<kWidth>(out, y, ElementwisePlace<kWidth>(i), count);
  }
}

template <int kWidth>
int64_t ElementwiseBlocks(int64_t count) {
  return CeilDiv(count, int64_t{kWidth} * kElementwisePacks * kElementwiseThreads);
}

// y[i] = function(x[i]).
template <typename X, typename Y, typename Function>
cudaError_t LaunchMap(const X* x, Y* y, int64_t count, Function function, cudaStream_t stream) {
  return Enqueue(MapOne<X, Y, Function>, ElementwiseBlocks<kElementwiseWidth<X, Y>>(count),
                 dim3(kElementwiseThreads), stream, x, y, count, function);
}

// y[i] = function(a[i], b[i]).
template <typename T, typename Function>
cudaError_t LaunchMap(const T* a, const T* b, T* y, int64_t count, Function function,
                      cudaStream_t stream) {
  return Enqueue(MapTwo<T, Function>, ElementwiseBlocks<kPackWidth<T>>(count),
                 dim3(kElementwiseThreads), stream, a, b, y, count, function);
}

}  // namespace ringmaster::cuda
