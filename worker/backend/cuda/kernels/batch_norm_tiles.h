// What the kernels of batch_norm and of its gradient share: where a thread stands, sums over the
// lanes of a block, and scratch. For .cu files only.
#pragma once

#include "worker/backend/cuda/kernels/batch_norm.h"
#include "worker/backend/cuda/kernels/channel_tiles.h"
#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/packs.h"

namespace ringmaster::cuda {

// Blocks of the passes that sum, and of those that apply: enough to fill the largest GPUs, few
// enough that the sums of pieces are soon combined. Constants, so that bits depend on shapes alone.
inline constexpr int64_t kSummingBlocks = 1024;
inline constexpr int64_t kApplyingBlocks = 2048;

// Channels, and lanes over the pieces, of a block that combines sums of pieces.
inline constexpr int kFinishChannels = 32;
inline constexpr int kFinishLanes = 32;

inline int BatchNormWidth(const BatchNormShape& shape, int pack_width) {
  return shape.channels % pack_width == 0 ? pack_width : 1;
}

inline ChannelTiles CutForSums(const BatchNormShape& shape, int width) {
  return CutIntoTiles(shape.rows, shape.channels, width, kSummingBlocks);
}

inline ChannelTiles CutForRows(const BatchNormShape& shape, int width) {
  return CutIntoTiles(shape.rows, shape.channels, width, kApplyingBlocks);
}

inline int64_t FinishBlocks(const BatchNormShape& shape) {
  return CeilDiv(shape.channels, kFinishChannels);
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

// This thread's part of block `block`.
struct TilePlace {
  int64_t piece;
  int64_t channel;  // first of its pack
  int64_t row;      // its first one
  int64_t end;      // of the piece
  bool inside;      // whether there is such a pack

  __device__ TilePlace(const ChannelTiles& tiles, unsigned block) {
    const auto wide = static_cast<unsigned>(tiles.tiles);
    const unsigned tile_packs = static_cast<unsigned>(tiles.tile_packs);
    const int64_t pack = static_cast<int64_t>(block % wide) * tile_packs + threadIdx.x % tile_packs;
    piece = block / wide;
    channel = pack * tiles.width;
    row = piece * tiles.piece_rows + threadIdx.x / tile_packs;
    end = tiles.end(piece);
    inside = pack < tiles.packs;
  }
};

// The sum of `value` over threadIdx.y, for every thread of a block of kFinishChannels by
// kFinishLanes; by halves, so in one fixed order.
__device__ inline double SumFinishLanes(double value) {
  __shared__ double values[kFinishLanes][kFinishChannels];
  double* const mine = &values[threadIdx.y][threadIdx.x];
  __syncthreads();  // nobody still reads what the last call left
  *mine = value;
  for (unsigned half = kFinishLanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y < half) *mine += values[threadIdx.y + half][threadIdx.x];
  }
  __syncthreads();
  return values[0][threadIdx.x];
}

}  // namespace ringmaster::cuda
