// Elements of a tensor as kernels read and write them: sixteen bytes at a time, computed with in
// float32. For kernels; the conversions also for host code. Thread-safe (values and free
// functions).
//
// Conversions round half to even and keep subnormals, as the CPU backend's do; too much is
// infinite, and NaN stays NaN, though not its payload.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "common/graph/tensor_type.h"
#include "common/host_device.h"

namespace ringmaster::cuda {

RING_HOST_DEVICE inline float ToFloat(float value) { return value; }
RING_HOST_DEVICE inline float ToFloat(__nv_bfloat16 value) { return __bfloat162float(value); }
RING_HOST_DEVICE inline float ToFloat(__half value) { return __half2float(value); }

template <typename T>
RING_HOST_DEVICE T FromFloat(float value);
template <>
RING_HOST_DEVICE inline float FromFloat<float>(float value) {
  return value;
}
template <>
RING_HOST_DEVICE inline __nv_bfloat16 FromFloat<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
RING_HOST_DEVICE inline __half FromFloat<__half>(float value) {
  return __float2half_rn(value);
}

template <typename T>
inline constexpr float kRoundsToZero = graph::RoundsToZero(graph::DType::kFloat32);
template <>
inline constexpr float kRoundsToZero<__nv_bfloat16> = graph::RoundsToZero(graph::DType::kBFloat16);
template <>
inline constexpr float kRoundsToZero<__half> = graph::RoundsToZero(graph::DType::kFloat16);

// Elements of T in 16 bytes: the widest load.
template <typename T>
inline constexpr int kPackWidth = 16 / static_cast<int>(sizeof(T));

// kWidth elements that lie side by side, at an address that is a multiple of their size.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T elements[kWidth];

  RING_HOST_DEVICE float get(int i) const { return ToFloat(elements[i]); }
  RING_HOST_DEVICE void set(int i, float value) { elements[i] = FromFloat<T>(value); }
};

template <int kWidth, typename T>
RING_HOST_DEVICE inline Pack<T, kWidth> LoadPack(const T* from) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(from);
}

template <int kWidth, typename T>
RING_HOST_DEVICE inline void StorePack(const Pack<T, kWidth>& pack, T* to) {
#if defined(__CUDA_ARCH__)
  // By an intrinsic: nvcc splits some stores of a whole pack into its elements.
  if constexpr (sizeof(pack) % sizeof(uint4) == 0) {
    uint4 words[sizeof(pack) / sizeof(uint4)];
    memcpy(words, pack.elements, sizeof(pack));
#pragma unroll
    for (size_t i = 0; i < sizeof(pack) / sizeof(uint4); ++i) {
      __stwb(reinterpret_cast<uint4*>(to) + i, words[i]);
    }
    return;
  }
#endif
  *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
}

// How many packs of a row of `channels` a kernel of that width works on.
RING_HOST_DEVICE inline int64_t PacksOf(int64_t channels, int width) {
  return (channels + width - 1) / width;
}

// A warp: how many lanes it has, and the mask that names all of them. For kernels.
inline constexpr int kWarpLanes = 32;
inline constexpr unsigned kAllLanes = 0xffffffffU;

}  // namespace ringmaster::cuda
