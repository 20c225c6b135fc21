// What the kernels of depthwise convolution share: positions are cut into strips of some columns of
// one row, which a thread computes for a pack of channels. Below one another the strips are counted
// rows first, so that threads side by side read the same rows of x from the cache. For .cu files
// only.
#pragma once

#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/packs.h"
#include "worker/backend/cuda/kernels/sums.h"
#include "worker/backend/cuda/kernels/windows.h"

namespace ringmaster::cuda {

inline constexpr int kDepthwiseThreads = ChannelTiles::kThreads;
inline constexpr int kStripColumns = 4;

// A tensor cut into strips of `columns` elements of a row.
struct DepthwiseStrips {
  int rows, strips;  // of a sample

  int64_t count(int64_t samples) const { return samples * rows * strips; }
};

struct StripPlace {
  int64_t sample;
  int row, strip;

  __device__ StripPlace(const DepthwiseStrips& strips, int64_t item) {
    const int64_t column = item / strips.rows;
    row = static_cast<int>(item - column * strips.rows);
    sample = column / strips.strips;
    strip = static_cast<int>(column - sample * strips.strips);
  }
};

__device__ inline bool Inside(const DepthwiseAxis& axis, int at) {
  return at >= 0 && at < axis.input;
}

// Packs at columns first, first + 1, ... of a row with `columns` of them; 0 where there is none.
template <typename T, int kWidth, int kCount>
__device__ __forceinline__ void LoadSegment(const T* row, int64_t channels, int columns, int first,
                                            Pack<T, kWidth> (&segment)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int column = first + i;
    segment[i] = {};
    if (column >= 0 && column < columns) segment[i] = LoadPack<kWidth>(row + column * channels);
  }
}

// A window of as many rows as columns, side by side, that moves as far down as to the side.
inline bool IsSquare(const DepthwiseShape& s, int window, int stride) {
  const auto is = [=](const DepthwiseAxis& axis) {
    return axis.window == window && axis.stride == stride && axis.dilation == 1;
  };
  return is(s.height) && is(s.width);
}

// Whether channels go by whole packs, a filter each.
template <typename T>
bool InPacks(const DepthwiseShape& s) {
  return s.multiplier == 1 && s.channels % kPackWidth<T> == 0;
}

}  // namespace ringmaster::cuda
