#include "worker/backend/cuda/kernels/products.h"

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

// A block takes some rows of positions: it brings the rows of x under them into shared memory, with
// their padding, and writes patch after patch from there, sixteen bytes a thread.

namespace {

constexpr int kPatchThreads = 256;
constexpr int kPatchPack = 8;
constexpr int kPatchRows = 4;  // of positions, that a block takes; those under them overlap

struct alignas(16) EightElements {
  uint16_t elements[kPatchPack];
};

// How a block lays rows of x: each begins at a whole pack, what pads it on the left before that.
struct PatchRows {
  int rows;   // of x
  int lead;   // elements before x, whole packs
  int pitch;  // elements, whole packs
  int skip;   // from the beginning of a row to where its padding begins
};

int WholePacks(int elements) {
  return static_cast<int>(CeilDiv(elements, kPatchPack)) * kPatchPack;
}

PatchRows RowsOf(const PatchShape& s, int position_rows) {
  PatchRows made = {};
  made.rows = (position_rows - 1) * s.stride_height + s.window_height;
  made.lead = WholePacks(s.pad_left * s.channels);
  made.skip = made.lead - s.pad_left * s.channels;
  made.pitch = WholePacks(made.skip + s.pitch());
  return made;
}

// kWide: a row of x is whole packs.
template <bool kWide>
__global__ void __launch_bounds__(kPatchThreads)
    Patches(PatchShape s, PatchRows r, int position_rows, const uint16_t* __restrict__ x,
            EightElements* __restrict__ patches) {
  __shared__ EightElements rows[kMostPatchElements / kPatchPack + 1];  // the last one: zeros
  __shared__ EightElements places[kMostPatchColumns / kPatchPack];     // of a patch's columns
  auto* const elements = reinterpret_cast<uint16_t*>(rows);
  const int thread = static_cast<int>(threadIdx.x);
  const auto tiles = static_cast<unsigned>((s.output_height + position_rows - 1) / position_rows);
  const int64_t sample = blockIdx.x / tiles;
  const int first_p = static_cast<int>(blockIdx.x % tiles) * position_rows;
  const int first_h = first_p * s.stride_height - s.pad_top;
  const int width = s.width * s.channels;
  const uint16_t* const image = x + sample * s.height * width;

  const int row_packs = r.pitch / kPatchPack;
  for (int i = thread; i < r.rows * row_packs; i += kPatchThreads) {
    const int row = i / row_packs;
    const int at = (i - row * row_packs) * kPatchPack - r.lead;
    const int h = first_h + row;
    const bool inside = h >= 0 && h < s.height;
    const uint16_t* const from = image + static_cast<int64_t>(h) * width;
    EightElements pack = {};
    if (kWide) {
      if (inside && at >= 0 && at < width) {
        pack = *reinterpret_cast<const EightElements*>(from + at);
      }
    } else {
#pragma unroll
      for (int k = 0; k < kPatchPack; ++k) {
        if (inside && at + k >= 0 && at + k < width) pack.elements[k] = from[at + k];
      }
    }
    rows[i] = pack;
  }
  const int run = s.window_width * s.channels;  // elements of a patch that lie side by side in x
  for (int i = thread; i < s.columns; i += kPatchThreads) {
    const int row = i / run;
    const bool there = row < s.window_height;
    const int place = there ? row * r.pitch + i - row * run : kMostPatchElements;
    reinterpret_cast<uint16_t*>(places)[i] = static_cast<uint16_t>(place);
  }
  if (thread == 0) rows[kMostPatchElements / kPatchPack] = {};
  __syncthreads();

  const int packs = s.columns / kPatchPack;
  for (int p = first_p; p < first_p + position_rows && p < s.output_height; ++p) {
    EightElements* const to = patches + (sample * s.output_height + p) * s.output_width * packs;
    const int row = (p - first_p) * s.stride_height * r.pitch + r.skip;
    for (int i = thread; i < s.output_width * packs; i += kPatchThreads) {
      const int q = i / packs;
      const int base = row + q * s.stride_width * s.channels;
      const EightElements from = places[i - q * packs];
      EightElements out;
#pragma unroll
      for (int k = 0; k < kPatchPack; ++k) {
        const int place = from.elements[k];
        out.elements[k] = elements[place == kMostPatchElements ? place : base + place];
      }
      to[i] = out;
    }
  }
}

}  // namespace

bool CanCutPatches(const PatchShape& shape) {
  const PatchRows one = RowsOf(shape, 1);
  return one.rows * int64_t{one.pitch} <= kMostPatchElements &&
         shape.columns <= kMostPatchColumns && shape.columns % kPatchPack == 0;
}

cudaError_t LaunchPatches(const PatchShape& shape, const void* x, void* patches,
                          cudaStream_t stream) {
  if (!CanCutPatches(shape)) return cudaErrorNotSupported;
  // No more than there are: strides are as large as somebody likes where there is one position.
  int position_rows = shape.output_height < kPatchRows ? shape.output_height : kPatchRows;
  while (int64_t{RowsOf(shape, position_rows).rows} * RowsOf(shape, position_rows).pitch >
         kMostPatchElements) {
    --position_rows;
  }
  const bool wide = shape.width * shape.channels % kPatchPack == 0;
  return Enqueue(wide ? Patches<true> : Patches<false>,
                 shape.samples * CeilDiv(shape.output_height, position_rows), dim3(kPatchThreads),
                 stream, shape, RowsOf(shape, position_rows), position_rows,
                 static_cast<const uint16_t*>(x), static_cast<EightElements*>(patches));
}

}  // namespace ringmaster::cuda
