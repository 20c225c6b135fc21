// Elements of a tensor as kernels read and write them: sixteen bytes at a time, computed with in
// float32; and how rows of channels of them are cut among blocks of threads. For kernels; what is
// arithmetic also for host code. Thread-safe (values and free functions).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>

#include "common/graph/tensor_type.h"
#include "common/numeric/host_device.h"

namespace ringmaster::cuda {

// Conversions round half to even and keep subnormals, as the CPU backend's do; too much is
// infinite, and NaN stays NaN, though not its payload.

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

// A float32 as the formulas of common/graph/ops (unary.h, pair_loss.h) compute with numbers.
class Real {
 public:
  template <typename Number>
  RING_HOST_DEVICE explicit Real(Number number) : value_(static_cast<float>(number)) {}
  RING_HOST_DEVICE explicit operator float() const { return value_; }

  RING_HOST_DEVICE friend Real operator+(Real a, Real b) { return Real(a.value_ + b.value_); }
  RING_HOST_DEVICE friend Real operator-(Real a, Real b) { return Real(a.value_ - b.value_); }
  RING_HOST_DEVICE friend Real operator*(Real a, Real b) { return Real(a.value_ * b.value_); }
  RING_HOST_DEVICE friend Real operator/(Real a, Real b) { return Real(a.value_ / b.value_); }
  RING_HOST_DEVICE friend bool operator<=(Real a, Real b) { return a.value_ <= b.value_; }
  RING_HOST_DEVICE friend bool operator>=(Real a, Real b) { return a.value_ >= b.value_; }
  RING_HOST_DEVICE friend Real Select(bool condition, Real yes, Real no) {
    return condition ? yes : no;
  }
  RING_HOST_DEVICE friend Real Abs(Real x) { return Real(fabsf(x.value_)); }
  RING_HOST_DEVICE friend Real Erf(Real x) { return Real(erff(x.value_)); }
  RING_HOST_DEVICE friend Real Exp(Real x) { return Real(expf(x.value_)); }
  RING_HOST_DEVICE friend Real Expm1(Real x) { return Real(expm1f(x.value_)); }
  RING_HOST_DEVICE friend Real Log1p(Real x) { return Real(log1pf(x.value_)); }
  RING_HOST_DEVICE friend Real TanhOf(Real x) { return Real(tanhf(x.value_)); }

 private:
  float value_;
};

// The graph's name of a storage type.
template <typename T>
inline constexpr graph::DType kDTypeOf = graph::DType::kFloat32;
template <>
inline constexpr graph::DType kDTypeOf<__nv_bfloat16> = graph::DType::kBFloat16;
template <>
inline constexpr graph::DType kDTypeOf<__half> = graph::DType::kFloat16;

template <typename T>
inline constexpr float kRoundsToZero = graph::RoundsToZero(kDTypeOf<T>);
template <typename T>
inline constexpr float kRoundsToSix = graph::RoundsToSix(kDTypeOf<T>);

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

// How a tensor of rows by channels is cut among blocks of threads when something happens by
// channel: tiles of channels side by side, pieces of rows one below the other. Only the shape
// decides, so that sums have one order on every GPU.
//
// Inside a block, thread (pack, lane) takes the channels of one pack, in rows lane, lane + lanes,
// ... of the block's piece.

struct ChannelTiles {
  static constexpr int kThreads = 256;
  static constexpr int kBatch = 8;  // rows that a thread loads at once

  int64_t rows;
  int64_t channels;
  int width;       // channels of one pack
  int tile_packs;  // a power of two
  int64_t packs;
  int64_t tiles;
  int64_t pieces;
  int64_t piece_rows;  // of each piece but the last; a multiple of lanes() times the batch

  RING_HOST_DEVICE int lanes() const { return kThreads / tile_packs; }
  int64_t blocks() const { return tiles * pieces; }
  // Where piece i ends.
  RING_HOST_DEVICE int64_t end(int64_t piece) const {
    const int64_t last = (piece + 1) * piece_rows;
    return last < rows ? last : rows;
  }
  RING_HOST_DEVICE int64_t rows_of(int64_t piece) const { return end(piece) - piece * piece_rows; }
};

// Pieces are as small as makes `wanted_blocks` blocks in all, or fewer where rows are few: a thread
// has a batch of them at least.
inline ChannelTiles CutIntoTiles(int64_t rows, int64_t channels, int width, int64_t wanted_blocks,
                                 int batch = ChannelTiles::kBatch) {
  const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  ChannelTiles tiles = {rows, channels, width, 1, ceil_div(channels, width), 0, 0, 0};
  // 128 bytes of a row, which are one line of the cache; of single elements a warp.
  const int most = width == 1 ? 32 : 8;
  while (tiles.tile_packs < most && tiles.tile_packs < tiles.packs) tiles.tile_packs *= 2;
  tiles.tiles = ceil_div(tiles.packs, tiles.tile_packs);
  const int64_t wanted = tiles.tiles < wanted_blocks ? wanted_blocks / tiles.tiles : 1;
  const int64_t step = int64_t{tiles.lanes()} * batch;
  tiles.piece_rows = ceil_div(ceil_div(rows, wanted), step) * step;
  tiles.pieces = ceil_div(rows, tiles.piece_rows);
  return tiles;
}

// Mean and spread of many numbers by channel, one batch after another.

// Count, means and sums of squared deviations of kWidth channels, which share their count.
template <int kWidth>
struct PackMoments {
  float count = 0;
  float mean[kWidth] = {};
  float squares[kWidth] = {};

  // What part of all numbers `other_count` more will be, which are not none.
  RING_HOST_DEVICE float ShareOf(float other_count) const {
    return other_count / (count + other_count);
  }
  // Channel c of those that join (Chan, Golub and LeVeque, "Updating formulae and a pairwise
  // algorithm for computing sample variances", 1979), which does not cancel; `count` is still that
  // without them.
  RING_HOST_DEVICE void Join(int c, float share, float other_mean, float other_squares) {
    const float difference = other_mean - mean[c];
    squares[c] += other_squares + difference * difference * count * share;
    mean[c] += difference * share;
  }
};

}  // namespace ringmaster::cuda
