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

// What a thread reads of one array: all of it before it computes.
template <int kWidth, typename T>
struct ElementwiseStrip {
  Pack<T, kWidth> packs[kElementwisePacks];

  __device__ ElementwiseStrip(const T* from, int64_t count) {
#pragma unroll
    for (int i = 0; i < kElementwisePacks; ++i) {
      packs[i] = LoadUpTo<kWidth>(from, ElementwisePlace<kWidth>(i), count);
    }
  }
};

template <int kWidth, typename Y, typename Function, typename... X>
__device__ void MapStrips(Y* y, int64_t count, const Function& function,
                          const ElementwiseStrip<kWidth, X>&... in) {
#pragma unroll
  for (int i = 0; i < kElementwisePacks; ++i) {
    Pack<Y, kWidth> out;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) out.set(k, function(in.packs[i].get(k)...));
    StoreUpTo<kWidth>(out, y, ElementwisePlace<kWidth>(i), count);
  }
}

template <int kWidth, typename Y, typename Function, typename... X>
__global__ void __launch_bounds__(kElementwiseThreads)
    MapElements(Y* y, int64_t count, Function function, const X*... x) {
  MapStrips<kWidth>(y, count, function, ElementwiseStrip<kWidth, X>(x, count)...);
}

template <int kWidth>
int64_t ElementwiseBlocks(int64_t count) {
  return CeilDiv(count, int64_t{kWidth} * kElementwisePacks * kElementwiseThreads);
}

template <int kWidth, typename Y, typename Function, typename... X>
cudaError_t EnqueueMap(Y* y, int64_t count, Function function, cudaStream_t stream, const X*... x) {
  void (*const kernel)(Y*, int64_t, Function, const X*...) = MapElements<kWidth, Y, Function, X...>;
  return Enqueue(kernel, ElementwiseBlocks<kWidth>(count), dim3(kElementwiseThreads), stream, y,
                 count, function, x...);
}

// y[i] = function(x[i]).
template <typename X, typename Y, typename Function>
cudaError_t LaunchMap(const X* x, Y* y, int64_t count, Function function, cudaStream_t stream) {
  return EnqueueMap<kElementwiseWidth<X, Y>>(y, count, function, stream, x);
}

// y[i] = function(a[i], b[i]).
template <typename T, typename Function>
cudaError_t LaunchMap(const T* a, const T* b, T* y, int64_t count, Function function,
                      cudaStream_t stream) {
  return EnqueueMap<kPackWidth<T>>(y, count, function, stream, a, b);
}

// y[i] = function(a[i], b[i], c[i]).
template <typename T, typename Function>
cudaError_t LaunchMap(const T* a, const T* b, const T* c, T* y, int64_t count, Function function,
                      cudaStream_t stream) {
  return EnqueueMap<kPackWidth<T>>(y, count, function, stream, a, b, c);
}

}  // namespace ringmaster::cuda
