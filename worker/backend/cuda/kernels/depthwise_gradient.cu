// The gradient of depthwise weights in two levels. A block takes some taps of the window, a tile of
// channels and a piece of the strips of dy: each thread keeps its sums for all of the taps in
// registers, lanes of a warp are added by shuffles, then warps in their order. A second kernel adds
// the pieces in double.
#include "worker/backend/cuda/kernels/depthwise_strips.h"
#include "worker/backend/cuda/kernels/windows.h"

namespace ringmaster::cuda {
namespace {

constexpr int64_t kTapBlocks = 1024;  // wanted
constexpr int kWarps = kDepthwiseThreads / kWarpLanes;

// How the taps of a window are dealt to blocks: rows by columns of them to each.
struct TapGroups {
  int rows, columns;  // taps of a block
  int across, count;  // groups side by side, and in all

  TapGroups(const DepthwiseShape& s, int rows_of_one, int columns_of_one)
      : rows(rows_of_one),
        columns(columns_of_one),
        across(static_cast<int>(CeilDiv(s.width.window, columns))),
        count(static_cast<int>(CeilDiv(s.height.window, rows)) * across) {}
};

DepthwiseStrips StripsOf(const DepthwiseShape& s) {
  return {s.height.output, static_cast<int>(CeilDiv(s.width.output, kStripColumns))};
}

ChannelTiles CutForTaps(const DepthwiseShape& s, const TapGroups& groups, int width) {
  const int64_t wanted = kTapBlocks / groups.count;
  return CutIntoTiles(StripsOf(s).count(s.samples), s.filters(), width, wanted > 1 ? wanted : 1, 1);
}

// Which taps a block takes: windows of 3x3 whole, a row of one of 5 or 7 columns, else four.
TapGroups GroupsFor(const DepthwiseShape& s, int width) {
  if (width > 1 && s.height.window == 3 && s.width.window == 3) return {s, 3, 3};
  if (width > 1 && s.width.window == 5) return {s, 1, 5};
  if (width > 1 && s.width.window == 7) return {s, 1, 7};
  return {s, 1, 4};
}

// One strip's terms of one row of taps. kStride 0: what the shape says; else that, without
// dilation.
template <typename T, int kWidth, int kColumns, int kStride>
__device__ __forceinline__ void AddStrip(const DepthwiseAxis& axis, const T* row, int64_t channels,
                                         int first, int first_tap,
                                         const Pack<T, kWidth> (&dy)[kStripColumns],
                                         float (&sums)[kColumns][kWidth]) {
  const auto add = [&](int i, const Pack<T, kWidth>& x, const Pack<T, kWidth>& gradient) {
#pragma unroll
    for (int c = 0; c < kWidth; ++c) sums[i][c] = fmaf(x.get(c), gradient.get(c), sums[i][c]);
  };
  if constexpr (kStride > 0) {
    constexpr int kSegment = (kStripColumns - 1) * kStride + kColumns;
    Pack<T, kWidth> segment[kSegment];
    LoadSegment(row, channels, axis.input, first * kStride - axis.pad + first_tap, segment);
#pragma unroll
    for (int k = 0; k < kStripColumns; ++k) {
      if (first + k >= axis.output) break;
#pragma unroll
      for (int i = 0; i < kColumns; ++i) add(i, segment[k * kStride + i], dy[k]);
    }
  } else {
#pragma unroll
    for (int k = 0; k < kStripColumns; ++k) {
      if (first + k >= axis.output) break;
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const int column = (first + k) * axis.stride - axis.pad + (first_tap + i) * axis.dilation;
        if (Inside(axis, column)) add(i, LoadPack<kWidth>(row + column * channels), dy[k]);
      }
    }
  }
}

// The sums of all lanes of the block, into `pieces` by tap and channel.
template <int kWidth, int kRows, int kColumns>
__device__ void SumTaps(const DepthwiseShape& s, const ChannelTiles& tiles, const TilePlace& place,
                        int first_row, int first_column, float (&sums)[kRows][kColumns][kWidth],
                        float* pieces) {
  constexpr int kTaps = kRows * kColumns;
  constexpr int kTileChannels = (kWidth == 1 ? kWarpLanes : 8) * kWidth;  // at most
  __shared__ float of_warps[kWarps][kTaps][kTileChannels];
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpLanes;
  const int tile_channels = tiles.tile_packs * kWidth;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
#pragma unroll
      for (int c = 0; c < kWidth; ++c) {
        float sum = sums[r][i][c];
        for (int step = tiles.tile_packs; step < kWarpLanes; step *= 2) {
          sum += __shfl_xor_sync(kAllLanes, sum, step);
        }
        if (thread % kWarpLanes < tiles.tile_packs) {
          of_warps[warp][r * kColumns + i][thread % kWarpLanes * kWidth + c] = sum;
        }
      }
    }
  }
  __syncthreads();
  const int64_t filters = s.channels * s.multiplier;
  const int64_t first_channel = place.tile * tile_channels;
  for (int i = thread; i < kTaps * tile_channels; i += kDepthwiseThreads) {
    const int tap = i / tile_channels;
    const int channel = i - tap * tile_channels;
    const int row = first_row + tap / kColumns;
    const int column = first_column + tap % kColumns;
    if (row >= s.height.window || column >= s.width.window) continue;
    if (first_channel + channel >= filters) continue;
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += of_warps[w][tap][channel];
    const int64_t taps = static_cast<int64_t>(s.height.window) * s.width.window;
    pieces[(place.piece * taps + int64_t{row} * s.width.window + column) * filters + first_channel +
           channel] = sum;
  }
}

template <typename T, int kWidth, int kRows, int kColumns, int kStride>
__global__ void __launch_bounds__(kDepthwiseThreads)
    PieceTaps(DepthwiseShape s, DepthwiseStrips strips, ChannelTiles tiles, TapGroups groups,
              const T* __restrict__ x, const T* __restrict__ dy, float* __restrict__ pieces) {
  const auto group = static_cast<int>(blockIdx.x % static_cast<unsigned>(groups.count));
  const int first_row = group / groups.across * kRows;
  const int first_column = group % groups.across * kColumns;
  const TilePlace place(tiles, blockIdx.x / static_cast<unsigned>(groups.count));
  const int64_t filters = s.channels * s.multiplier;
  const int64_t channel = place.channel / s.multiplier;
  float sums[kRows][kColumns][kWidth] = {};
  const int64_t end = place.inside ? place.end : place.row;
  for (int64_t item = place.row; item < end; item += tiles.lanes()) {
    const StripPlace at(strips, item);
    const int first = at.strip * kStripColumns;
    Pack<T, kWidth> gradients[kStripColumns];
    LoadSegment(
        dy + (at.sample * s.height.output + at.row) * s.width.output * filters + place.channel,
        filters, s.width.output, first, gradients);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = at.row * s.height.stride - s.height.pad + (first_row + r) * s.height.dilation;
      if (!Inside(s.height, row)) continue;
      AddStrip<T, kWidth, kColumns, kStride>(
          s.width, x + (at.sample * s.height.input + row) * s.width.input * s.channels + channel,
          s.channels, first, first_column, gradients, sums[r]);
    }
  }
  SumTaps(s, tiles, place, first_row, first_column, sums, pieces);
}

// dw by filter and tap, of pieces by tap and filter.
__global__ void __launch_bounds__(kFinishChannels* kFinishLanes)
    FinishTaps(int64_t filters, int64_t taps, int64_t count, const float* __restrict__ pieces,
               float* __restrict__ dw) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kFinishChannels + threadIdx.x;
  const bool inside = i < filters * taps;
  double mine = 0;
  for (int64_t piece = threadIdx.y; inside && piece < count; piece += kFinishLanes) {
    mine += static_cast<double>(pieces[piece * filters * taps + i]);
  }
  const double sum = SumFinishLanes(mine);
  if (!inside || threadIdx.y != 0) return;
  const int64_t tap = i / filters;
  dw[(i - tap * filters) * taps + tap] = static_cast<float>(sum);
}

template <typename T, int kWidth, int kRows, int kColumns, int kStride>
cudaError_t StartTaps(const DepthwiseShape& s, const T* x, const T* dy, float* dw, float* pieces,
                      cudaStream_t stream) {
  const TapGroups groups(s, kRows, kColumns);
  const ChannelTiles tiles = CutForTaps(s, groups, kWidth);
  const cudaError_t error =
      Enqueue(PieceTaps<T, kWidth, kRows, kColumns, kStride>, tiles.blocks() * groups.count,
              dim3(kDepthwiseThreads), stream, s, StripsOf(s), tiles, groups, x, dy, pieces);
  if (error != cudaSuccess) return error;
  return Enqueue(FinishTaps, CeilDiv(s.filters() * s.taps(), kFinishChannels),
                 dim3(kFinishChannels, kFinishLanes), stream, s.filters(), s.taps(), tiles.pieces,
                 pieces, dw);
}

}  // namespace

size_t DepthwiseWorkspace(const DepthwiseShape& s, size_t element_bytes) {
  const int pack = 16 / static_cast<int>(element_bytes);
  const int width = s.multiplier == 1 && s.channels % pack == 0 ? pack : 1;
  const ChannelTiles tiles = CutForTaps(s, GroupsFor(s, width), width);
  return sizeof(float) * static_cast<size_t>(tiles.pieces * s.filters() * s.taps());
}

template <typename T>
cudaError_t LaunchDepthwiseWeightGradient(const DepthwiseShape& s, const T* x, const T* dy,
                                          float* dw, void* workspace, cudaStream_t stream) {
  constexpr int kWidth = kPackWidth<T>;
  auto* const pieces = static_cast<float*>(workspace);
  const auto start = [&](auto function) { return function(s, x, dy, dw, pieces, stream); };
  if (!InPacks<T>(s)) return start(StartTaps<T, 1, 1, 4, 0>);
  const int stride = s.width.dilation == 1 && s.width.stride <= 2 ? s.width.stride : 0;
  const auto by_stride = [&](auto one, auto two, auto any) {
    return start(stride == 1 ? one : stride == 2 ? two : any);
  };
  const TapGroups groups = GroupsFor(s, kWidth);
  if (groups.rows == 3) {
    return by_stride(StartTaps<T, kWidth, 3, 3, 1>, StartTaps<T, kWidth, 3, 3, 2>,
                     StartTaps<T, kWidth, 3, 3, 0>);
  }
  if (groups.columns == 5) {
    return by_stride(StartTaps<T, kWidth, 1, 5, 1>, StartTaps<T, kWidth, 1, 5, 2>,
                     StartTaps<T, kWidth, 1, 5, 0>);
  }
  if (groups.columns == 7) {
    return by_stride(StartTaps<T, kWidth, 1, 7, 1>, StartTaps<T, kWidth, 1, 7, 2>,
                     StartTaps<T, kWidth, 1, 7, 0>);
  }
  return start(StartTaps<T, kWidth, 1, 4, 0>);
}

template cudaError_t LaunchDepthwiseWeightGradient(const DepthwiseShape&, const float*,
                                                   const float*, float*, void*, cudaStream_t);
template cudaError_t LaunchDepthwiseWeightGradient(const DepthwiseShape&, const __nv_bfloat16*,
                                                   const __nv_bfloat16*, float*, void*,
                                                   cudaStream_t);
template cudaError_t LaunchDepthwiseWeightGradient(const DepthwiseShape&, const __half*,
                                                   const __half*, float*, void*, cudaStream_t);

}  // namespace ringmaster::cuda
