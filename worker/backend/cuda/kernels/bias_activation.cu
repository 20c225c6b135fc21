#include "worker/backend/cuda/kernels/bias_activation.h"

#include "worker/backend/cuda/kernels/channel_tiles.h"
#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/packs.h"

namespace ringmaster::cuda {
namespace {

constexpr int kBiasThreads = ChannelTiles::kThreads;
constexpr int64_t kSummingBlocks = 1024;  // wanted: enough for the largest GPUs
constexpr int64_t kMostBlocks = 4096;     // of kernels that loop over what is left

int64_t LoopBlocks(int64_t items) {
  const int64_t blocks = CeilDiv(items, kBiasThreads);
  return blocks < kMostBlocks ? blocks : kMostBlocks;
}

template <typename X>
int WidthOf(MatrixSize size) {
  return size.channels % kPackWidth<X> == 0 ? kPackWidth<X> : 1;
}

// A NaN stays one: the shard's flag must see it.
__device__ inline float Activate(float value, graph::Activation activation) {
  return activation == graph::Activation::kRelu && value < 0.0F ? 0.0F : value;
}

template <typename X, typename Y, int kWidth>
__global__ void __launch_bounds__(kBiasThreads)
    BiasActivation(MatrixSize size, const X* x, const float* bias, graph::Activation activation,
                   Y* y) {
  const int64_t row_packs = size.channels / kWidth;
  const int64_t packs = size.rows * row_packs;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kBiasThreads;
  const int64_t column_stride = stride % row_packs;
  int64_t pack = static_cast<int64_t>(blockIdx.x) * kBiasThreads + threadIdx.x;
  int64_t column = pack % row_packs;
  for (; pack < packs; pack += stride) {
    const Pack<X, kWidth> in = LoadPack<kWidth>(x + pack * kWidth);
    Pack<Y, kWidth> out;
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      float sum = in.get(c);
      if (bias != nullptr) sum += bias[column * kWidth + c];
      out.set(c, Activate(sum, activation));
    }
    StorePack(out, y + pack * kWidth);
    column += column_stride;
    if (column >= row_packs) column -= row_packs;
  }
}

// Lane 0 of each pack gets the sums of all its lanes, by halves.
template <int kWidth>
__device__ void SumColumnLanes(const ChannelTiles& tiles, float (&sums)[kWidth]) {
  __shared__ float shared[kWidth][kBiasThreads];
  const int mine = static_cast<int>(threadIdx.x);
  for (int half = tiles.lanes() / 2; half > 0; half /= 2) {
#pragma unroll
    for (int c = 0; c < kWidth; ++c) shared[c][mine] = sums[c];
    __syncthreads();
    if (mine < half * tiles.tile_packs) {
#pragma unroll
      for (int c = 0; c < kWidth; ++c) sums[c] += shared[c][mine + half * tiles.tile_packs];
    }
    __syncthreads();
  }
}

// sums[piece][c] = sum over the rows of the piece of x[r][c].
template <typename X, int kWidth>
__global__ void __launch_bounds__(kBiasThreads)
    SumPieces(ChannelTiles tiles, const X* x, float* sums) {
  const auto wide = static_cast<unsigned>(tiles.tiles);
  const auto tile_packs = static_cast<unsigned>(tiles.tile_packs);
  const int64_t pack =
      static_cast<int64_t>(blockIdx.x % wide) * tile_packs + threadIdx.x % tile_packs;
  const int64_t piece = blockIdx.x / wide;
  const int64_t end = tiles.end(piece);
  const bool inside = pack < tiles.packs;
  float sum[kWidth] = {};
  if (inside) {
    const X* const from = x + pack * kWidth;
#pragma unroll 4
    for (int64_t row = piece * tiles.piece_rows + threadIdx.x / tile_packs; row < end;
         row += tiles.lanes()) {
      const Pack<X, kWidth> in = LoadPack<kWidth>(from + row * tiles.channels);
#pragma unroll
      for (int c = 0; c < kWidth; ++c) sum[c] += in.get(c);
    }
  }
  SumColumnLanes<kWidth>(tiles, sum);
  if (!inside || threadIdx.x >= tile_packs) return;
  float* const to = sums + piece * tiles.channels + pack * kWidth;
#pragma unroll
  for (int c = 0; c < kWidth; ++c) to[c] = sum[c];
}

template <typename X, int kWidth>
cudaError_t StartSums(const ChannelTiles& tiles, const X* x, float* sums, cudaStream_t stream) {
  return Enqueue(SumPieces<X, kWidth>, tiles.blocks(), dim3(kBiasThreads), stream, tiles, x, sums);
}

template <typename X>
ChannelTiles CutForSums(MatrixSize size) {
  return CutIntoTiles(size.rows, size.channels, WidthOf<X>(size), kSummingBlocks);
}

template <typename X, typename Y>
__global__ void __launch_bounds__(kBiasThreads)
    ResizeRows(MatrixSize from, const X* x, MatrixSize to, Y* y) {
  const int64_t elements = to.rows * to.channels;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kBiasThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kBiasThreads + threadIdx.x; i < elements;
       i += stride) {
    const int64_t row = i / to.channels;
    const int64_t channel = i - row * to.channels;
    const bool inside = row < from.rows && channel < from.channels;
    y[i] = FromFloat<Y>(inside ? ToFloat(x[row * from.channels + channel]) : 0.0F);
  }
}

template <typename X, typename Y, int kWidth>
cudaError_t StartBias(MatrixSize size, const X* x, const float* bias, graph::Activation activation,
                      Y* y, cudaStream_t stream) {
  const int64_t blocks = LoopBlocks(size.rows * (size.channels / kWidth));
  return Enqueue(BiasActivation<X, Y, kWidth>, blocks, dim3(kBiasThreads), stream, size, x, bias,
                 activation, y);
}

}  // namespace

template <typename X, typename Y>
cudaError_t LaunchBiasActivation(MatrixSize size, const X* x, const float* bias,
                                 graph::Activation activation, Y* y, cudaStream_t stream) {
  // Of what is written; a pack of float32 may then be 32 bytes.
  constexpr int kWidth = kPackWidth<Y>;
  const bool whole = size.channels % kWidth == 0;
  return (whole ? StartBias<X, Y, kWidth> : StartBias<X, Y, 1>)(size, x, bias, activation, y,
                                                                stream);
}

template <typename X>
size_t ColumnSumScratch(MatrixSize size) {
  const ChannelTiles tiles = CutForSums<X>(size);
  return tiles.pieces == 1 ? 0 : static_cast<size_t>(tiles.pieces * size.channels) * sizeof(float);
}

template <typename X>
cudaError_t LaunchColumnSums(MatrixSize size, const X* x, float* scratch, float* sums,
                             cudaStream_t stream) {
  const ChannelTiles tiles = CutForSums<X>(size);
  float* const first = tiles.pieces == 1 ? sums : scratch;
  const auto start = tiles.width == 1 ? StartSums<X, 1> : StartSums<X, kPackWidth<X>>;
  const cudaError_t error = start(tiles, x, first, stream);
  if (error != cudaSuccess || tiles.pieces == 1) return error;
  // The pieces are a matrix of their own; wanting one block leaves one piece of it.
  const ChannelTiles rest = CutIntoTiles(tiles.pieces, size.channels, 1, 1);
  return StartSums<float, 1>(rest, scratch, sums, stream);
}

template <typename X, typename Y>
cudaError_t LaunchResize(MatrixSize from, const X* x, MatrixSize to, Y* y, cudaStream_t stream) {
  return Enqueue(ResizeRows<X, Y>, LoopBlocks(to.rows * to.channels), dim3(kBiasThreads), stream,
                 from, x, to, y);
}

#define RING_INSTANTIATE_BIAS(X, Y)                                                                \
  template cudaError_t LaunchBiasActivation(MatrixSize, const X*, const float*, graph::Activation, \
                                            Y*, cudaStream_t);
#define RING_INSTANTIATE_RESIZE(X, Y) \
  template cudaError_t LaunchResize(MatrixSize, const X*, MatrixSize, Y*, cudaStream_t);
#define RING_INSTANTIATE_COLUMNS(T)                \
  RING_INSTANTIATE_BIAS(T, T)                      \
  RING_INSTANTIATE_RESIZE(T, T)                    \
  template size_t ColumnSumScratch<T>(MatrixSize); \
  template cudaError_t LaunchColumnSums(MatrixSize, const T*, float*, float*, cudaStream_t);
RING_INSTANTIATE_COLUMNS(float)
RING_INSTANTIATE_COLUMNS(__nv_bfloat16)
RING_INSTANTIATE_COLUMNS(__half)
RING_INSTANTIATE_BIAS(float, __nv_bfloat16)
RING_INSTANTIATE_BIAS(float, __half)
RING_INSTANTIATE_RESIZE(__nv_bfloat16, float)
RING_INSTANTIATE_RESIZE(__half, float)
#undef RING_INSTANTIATE_COLUMNS
#undef RING_INSTANTIATE_RESIZE
#undef RING_INSTANTIATE_BIAS

}  // namespace ringmaster::cuda
