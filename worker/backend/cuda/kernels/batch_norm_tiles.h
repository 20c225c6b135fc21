// What the kernels of batch_norm and of its gradient share: how rows are cut, and scratch. For .cu
// files only.
#pragma once

#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/normalization.h"
#include "worker/backend/cuda/kernels/packs.h"
#include "worker/backend/cuda/kernels/sums.h"

namespace ringmaster::cuda {

// Blocks of the passes that sum, and of those that apply: enough that the largest GPUs, which hold
// some 300 at a time, are not half empty behind the last full round of them, few enough that the
// sums of pieces are soon combined. Constants, so that bits depend on shapes alone.
inline constexpr int64_t kSummingBlocks = 1024;
inline constexpr int64_t kApplyingBlocks = 4096;
inline constexpr int kApplyingRows = 4;  // that a thread has at least

inline int BatchNormWidth(const BatchNormShape& shape, int pack_width) {
  return shape.channels % pack_width == 0 ? pack_width : 1;
}

inline ChannelTiles CutForSums(const BatchNormShape& shape, int width) {
  return CutIntoTiles(shape.rows, shape.channels, width, kSummingBlocks);
}

inline ChannelTiles CutForRows(const BatchNormShape& shape, int width) {
  return CutIntoTiles(shape.rows, shape.channels, width, kApplyingBlocks, kApplyingRows);
}

inline int64_t FinishBlocks(const BatchNormShape& shape) {
  return CeilDiv(shape.channels, kFinishChannels);
}

// gamma / sqrt(variance + epsilon); without a gamma 1 stands for it.
__device__ inline float ScaleOf(const float* gamma, float variance, float epsilon,
                                int64_t channel) {
  return (gamma == nullptr ? 1.0F : gamma[channel]) / sqrtf(variance + epsilon);
}

template <int kWidth>
__device__ Pack<float, kWidth> LoadOrZero(const float* from, int64_t channel) {
  return from == nullptr ? Pack<float, kWidth>{} : LoadPack<kWidth>(from + channel);
}

// What x, of that deviation from its mean, becomes before the activation: the same operations
// wherever it is asked for, so the same bits.
__device__ __forceinline__ float Scaled(float deviation, float scale, float beta) {
  return fmaf(deviation, scale, beta);
}

// Two vectors of channels for each piece, then what the applying pass reads.
struct BatchNormScratch {
  float *pieces, *scale, *offset, *slope;

  static int64_t Floats(const ChannelTiles& tiles) {
    return (2 * tiles.pieces + 3) * tiles.channels;
  }
  BatchNormScratch(const ChannelTiles& tiles, void* workspace)
      : pieces(static_cast<float*>(workspace)),
        scale(pieces + 2 * tiles.pieces * tiles.channels),
        offset(scale + tiles.channels),
        slope(offset + tiles.channels) {}
};

}  // namespace ringmaster::cuda
