// How a tensor of rows by channels is cut among blocks of threads when something happens by
// channel: tiles of channels side by side, pieces of rows one below the other. Only the shape
// decides, so that sums have one order on every GPU. For kernels and for host code; values.
//
// Inside a block, thread (pack, lane) takes the channels of one pack, in rows lane, lane + lanes,
// ... of the block's piece.
#pragma once

#include <cstdint>

#include "common/host_device.h"

namespace ringmaster::cuda {

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

// Mean and spread of many numbers by channel, one batch after another. For kernels and for host
// code; values.

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
