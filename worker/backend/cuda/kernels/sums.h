// Sums over threads, and by channel over ChannelTiles, each in one fixed order. For .cu files only.
#pragma once

#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/packs.h"

namespace ringmaster::cuda {

inline constexpr int kSumThreads = 256;

// Over a warp, by halves; every lane has it.
template <typename T>
__device__ T SumOverWarp(T sum) {
  for (int half = kWarpLanes / 2; half > 0; half /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, half);
  }
  return sum;
}

// Over a block of kThreads, a power of two, by halves; thread 0 has it. Once in a kernel.
template <int kThreads>
__device__ double SumOverBlock(double sum) {
  __shared__ double sums[kThreads];
  const unsigned mine = threadIdx.x;
  sums[mine] = sum;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (mine < half) sums[mine] += sums[mine + half];
  }
  return sums[mine];
}

// One block: each thread adds values in their order.
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    SumOverAll(int64_t count, const double* __restrict__ values, double divisor,
               float* __restrict__ whole) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += values[i];
  sum = SumOverBlock<kThreads>(sum);
  if (threadIdx.x == 0) *whole = static_cast<float>(sum / divisor);
}

// whole = the sum of the values / divisor.
inline cudaError_t LaunchSum(int64_t count, const double* values, double divisor, float* whole,
                             cudaStream_t stream) {
  return Enqueue(SumOverAll<kSumThreads>, 1, dim3(kSumThreads), stream, count, values, divisor,
                 whole);
}

// By channel: where a thread stands, and how what the pieces of rows gave is combined.

// Channels, and lanes over the pieces, of a block that combines sums of pieces. Few channels, whose
// sums are 32 bytes side by side, so that many lanes share what they wait for; and pieces that a
// lane loads at once.
inline constexpr int kFinishChannels = 8;
inline constexpr int kFinishLanes = 128;
inline constexpr int kFinishBatch = 8;

// This thread's part of block `block`.
struct TilePlace {
  int64_t piece;
  int64_t tile;
  int64_t channel;  // first of its pack
  int64_t row;      // its first one
  int64_t end;      // of the piece
  bool inside;      // whether there is such a pack

  __device__ TilePlace(const ChannelTiles& tiles, unsigned block) {
    const auto wide = static_cast<unsigned>(tiles.tiles);
    const unsigned tile_packs = static_cast<unsigned>(tiles.tile_packs);
    piece = block / wide;
    tile = block % wide;
    const int64_t pack = tile * tile_packs + threadIdx.x % tile_packs;
    channel = pack * tiles.width;
    row = piece * tiles.piece_rows + threadIdx.x / tile_packs;
    end = tiles.end(piece);
    inside = pack < tiles.packs;
  }
};

// The sum of `value` over threadIdx.y, for every thread of a block of kFinishChannels by
// kFinishLanes; first over the lanes of a warp, then over warps, by halves, so in one fixed order.
__device__ inline double SumFinishLanes(double value) {
  constexpr int kLanesOfWarp = kWarpLanes / kFinishChannels;
  constexpr int kWarps = kFinishLanes / kLanesOfWarp;
  __shared__ double values[kWarps][kFinishChannels];
  const auto over_warp = [](double sum) {
#pragma unroll
    for (int half = kLanesOfWarp / 2; half > 0; half /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, half * kFinishChannels);
    }
    return sum;
  };
  value = over_warp(value);
  __syncthreads();  // nobody still reads what the last call left
  const unsigned lane = threadIdx.y % kLanesOfWarp;
  if (lane == 0) values[threadIdx.y / kLanesOfWarp][threadIdx.x] = value;
  __syncthreads();
  double sum = 0;
#pragma unroll
  for (int i = 0; i < kWarps / kLanesOfWarp; ++i) {
    sum += values[i * kLanesOfWarp + lane][threadIdx.x];
  }
  return over_warp(sum);
}

}  // namespace ringmaster::cuda
