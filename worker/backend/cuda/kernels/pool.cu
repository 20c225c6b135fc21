// A block takes one row of y (or of x) with all its channels, a thread one pack of channels of one
// position. The gradient of a maximum has two ways: where each element of x lies in exactly one
// window, the thread of the window writes them all. Elsewhere a block takes a tile of x: it finds
// once where each window over the tile has its maximum, and keeps that in shared memory; then the
// thread of an element of x looks at the windows over it, in order, so that nothing is written
// twice.
#include "worker/backend/cuda/kernels/windows.h"

#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/packs.h"

namespace ringmaster::cuda {
namespace {

constexpr int kPoolThreads = 256;

__device__ __forceinline__ int ThreadOfRow() { return static_cast<int>(threadIdx.x); }
__device__ __forceinline__ int ThreadsOfRow() { return static_cast<int>(blockDim.x); }

// Positions of the axis in window p: [first, last).
__device__ __forceinline__ int WindowFirst(const PoolAxis& axis, int p) {
  const int first = p * axis.stride - axis.pad;
  return first > 0 ? first : 0;
}
__device__ __forceinline__ int WindowLast(const PoolAxis& axis, int p) {
  const int last = p * axis.stride - axis.pad + axis.window;
  return last < axis.input ? last : axis.input;
}

// Windows over position i of the axis: [first, last).
__device__ __forceinline__ int CoverFirst(const PoolAxis& axis, int i) {
  const int past = i + axis.pad - axis.window;  // the last window begins after it when past >= 0
  return past < 0 ? 0 : past / axis.stride + 1;
}
__device__ __forceinline__ int CoverLast(const PoolAxis& axis, int i) {
  const int last = (i + axis.pad) / axis.stride + 1;
  return last < axis.output ? last : axis.output;
}

// Which position of its window a maximum has, counted row by row from where the window begins, in
// the padding or not. Of each channel of a pack.
constexpr uint16_t kNowhere = 0xffff;
template <int kWidth>
struct alignas(sizeof(uint16_t) * kWidth) Positions {
  uint16_t at[kWidth];
};

template <typename T, int kWidth>
struct Maxima {
  Pack<T, kWidth> values = {};
  Positions<kWidth> positions = {};
};

// The first maximum of window (p, q), by channel; `sample` points at the channels. Where the first
// element is NaN that is the maximum, and nobody's.
template <typename T, int kWidth>
__device__ __forceinline__ Maxima<T, kWidth> MaximaOf(const PoolShape& s, const T* sample, int p,
                                                      int q) {
  constexpr int kLoads = 4;  // in flight at once
  const int first_h = WindowFirst(s.height, p);
  const int last_h = WindowLast(s.height, p);
  const int first_w = WindowFirst(s.width, q);
  const int last_w = WindowLast(s.width, q);
  const int begin_h = p * s.height.stride - s.height.pad;
  const int begin_w = q * s.width.stride - s.width.pad;
  Maxima<T, kWidth> best;
  for (int h = first_h; h < last_h; ++h) {
    const T* const row = sample + static_cast<int64_t>(h) * s.width.input * s.channels;
    for (int w = first_w; w < last_w; w += kLoads) {
      Pack<T, kWidth> candidates[kLoads] = {};
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        if (w + i < last_w) candidates[i] = LoadPack<kWidth>(row + (w + i) * s.channels);
      }
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        if (w + i >= last_w) break;
        const bool first = h == first_h && w + i == first_w;
        const auto position =
            static_cast<uint16_t>((h - begin_h) * s.width.window + w + i - begin_w);
#pragma unroll
        for (int c = 0; c < kWidth; ++c) {
          if (!first && !(candidates[i].get(c) > best.values.get(c))) continue;
          best.values.elements[c] = candidates[i].elements[c];
          best.positions.at[c] = position;
        }
      }
    }
  }
#pragma unroll
  for (int c = 0; c < kWidth; ++c) {
    const float value = best.values.get(c);
    if (value != value) best.positions.at[c] = kNowhere;
  }
  return best;
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kPoolThreads)
    PoolRows(PoolShape s, int packs, const T* __restrict__ x, T* __restrict__ y) {
  const int64_t n = blockIdx.x / static_cast<unsigned>(s.height.output);
  const int p = static_cast<int>(blockIdx.x % static_cast<unsigned>(s.height.output));
  const T* const sample = x + n * s.height.input * s.width.input * s.channels;
  T* const to = y + static_cast<int64_t>(blockIdx.x) * s.width.output * s.channels;
  for (int i = ThreadOfRow(); i < s.width.output * packs; i += ThreadsOfRow()) {
    const int q = i / packs;
    const int64_t channel = (i - q * packs) * kWidth;
    const Maxima<T, kWidth> best = MaximaOf<T, kWidth>(s, sample + channel, p, q);
    StorePack<kWidth>(best.values, to + q * s.channels + channel);
  }
}

// Each element of x lies in exactly one window: rows of y.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kPoolThreads)
    ScatterTiles(PoolShape s, int packs, const T* __restrict__ x, const T* __restrict__ y,
                 const T* __restrict__ dy, T* __restrict__ dx) {
  const int64_t n = blockIdx.x / static_cast<unsigned>(s.height.output);
  const int p = static_cast<int>(blockIdx.x % static_cast<unsigned>(s.height.output));
  const int64_t sample = n * s.height.input * s.width.input * s.channels;
  const int64_t output = static_cast<int64_t>(blockIdx.x) * s.width.output * s.channels;
  const int last_h = WindowLast(s.height, p);
  for (int i = ThreadOfRow(); i < s.width.output * packs; i += ThreadsOfRow()) {
    const int q = i / packs;
    const int64_t channel = (i - q * packs) * kWidth;
    const int last_w = WindowLast(s.width, q);
    const auto maximum = LoadPack<kWidth>(y + output + q * s.channels + channel);
    const auto gradient = LoadPack<kWidth>(dy + output + q * s.channels + channel);
    unsigned open = ~0U;  // bit c: channel c's gradient has not been taken
    for (int h = WindowFirst(s.height, p); h < last_h; ++h) {
      const int64_t row = sample + static_cast<int64_t>(h) * s.width.input * s.channels + channel;
      for (int w = WindowFirst(s.width, q); w < last_w; ++w) {
        const int64_t at = row + w * s.channels;
        const auto candidate = LoadPack<kWidth>(x + at);
        Pack<T, kWidth> out;
#pragma unroll
        for (int c = 0; c < kWidth; ++c) {
          const bool takes = candidate.get(c) == maximum.get(c) && (open >> c & 1U) != 0;
          if (takes) open &= ~(1U << c);
          out.set(c, takes ? gradient.get(c) : 0.0F);
        }
        StorePack<kWidth>(out, dx + at);
      }
    }
  }
}

// How x is cut for windows that overlap: only the shape decides. Values.
struct OverlapTiles {
  static constexpr int kMostPositions = 18 * 1024;  // of maxima, in shared memory
  static constexpr int kMostColumns = 1024;         // likewise, what lies over them

  PoolShape shape;
  int packs;                 // of all channels
  int rows, columns, depth;  // of a tile, in positions of x and in packs, a power of two
  int row_tiles, column_tiles, pack_tiles;

  // Windows over `n` positions that follow each other, at most.
  static int64_t WindowsOver(const PoolAxis& axis, int n) {
    const int64_t most = (int64_t{n} + axis.window - 2) / axis.stride + 1;
    return most < axis.output ? most : axis.output;
  }
  bool Fits(int width) const {
    return columns <= kMostColumns &&
           WindowsOver(shape.height, rows) * WindowsOver(shape.width, columns) * depth * width <=
               kMostPositions;
  }
  int64_t blocks() const { return shape.samples * row_tiles * column_tiles * pack_tiles; }
};

int TilesOf(int count, int tile) { return static_cast<int>(CeilDiv(count, tile)); }

// False where not even one element's windows fit, or a window has too many positions.
bool CutOverlapping(const PoolShape& s, int width, OverlapTiles* tiles) {
  constexpr int kRows = 8;
  constexpr int kDepth = 8;  // 128 bytes, as packs go
  const auto packs = static_cast<int>(PacksOf(s.channels, width));
  tiles->shape = s;
  tiles->packs = packs;
  tiles->rows = s.height.input < kRows ? s.height.input : kRows;
  tiles->columns = s.width.input;
  tiles->depth = 1;
  while (tiles->depth < kDepth && tiles->depth < packs) tiles->depth *= 2;
  while (!tiles->Fits(width)) {
    if (tiles->columns > 2 * kRows) {
      tiles->columns /= 2;
    } else if (tiles->depth > 1) {
      tiles->depth /= 2;
    } else if (tiles->rows > 1) {
      tiles->rows /= 2;
    } else if (tiles->columns > 1) {
      tiles->columns /= 2;
    } else {
      return false;
    }
  }
  tiles->row_tiles = TilesOf(s.height.input, tiles->rows);
  tiles->column_tiles = TilesOf(s.width.input, tiles->columns);
  tiles->pack_tiles = TilesOf(packs, tiles->depth);
  return int64_t{s.height.window} * s.width.window < kNowhere;
}

// One axis of a tile: its positions of x, and the windows over them.
struct TileAxis {
  int first, end, first_window, windows;

  __device__ TileAxis(const PoolAxis& axis, int tile, int size)
      : first(tile * size),
        end(first + size < axis.input ? first + size : axis.input),
        first_window(CoverFirst(axis, first)),
        windows(CoverLast(axis, end - 1) - first_window) {}
};

// Which windows lie over a position of an axis: [first, last), counted from the tile's first one.
struct Cover {
  uint16_t first, last;
};

__device__ __forceinline__ Cover CoverOf(const PoolAxis& axis, const TileAxis& tile, int i) {
  return {static_cast<uint16_t>(CoverFirst(axis, i) - tile.first_window),
          static_cast<uint16_t>(CoverLast(axis, i) - tile.first_window)};
}

// A thread keeps its pack of channels: `depth` is a power of two.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kPoolThreads)
    GatherTiles(OverlapTiles t, const T* __restrict__ x, const T* __restrict__ dy,
                T* __restrict__ dx) {
  __shared__ Positions<kWidth> maxima[OverlapTiles::kMostPositions / kWidth];
  __shared__ Cover covers[OverlapTiles::kMostColumns];  // of the tile's columns
  const PoolShape& s = t.shape;
  unsigned block = blockIdx.x;
  const auto next = [&block](int count) {
    const auto which = static_cast<int>(block % static_cast<unsigned>(count));
    block /= static_cast<unsigned>(count);
    return which;
  };
  const int pack = ThreadOfRow() % t.depth;
  const int whole_pack = next(t.pack_tiles) * t.depth + pack;
  const TileAxis columns(s.width, next(t.column_tiles), t.columns);
  const TileAxis rows(s.height, next(t.row_tiles), t.rows);
  const int64_t n = block;
  const int64_t channel = int64_t{whole_pack} * kWidth;
  const T* const from = x + n * s.height.input * s.width.input * s.channels + channel;
  const T* const gradients = dy + n * s.height.output * s.width.output * s.channels + channel;
  T* const to = dx + n * s.height.input * s.width.input * s.channels + channel;
  const bool inside = whole_pack < t.packs;
  const int lane = ThreadOfRow() / t.depth;
  const int lanes = kPoolThreads / t.depth;
  const int width = columns.end - columns.first;

  for (int i = ThreadOfRow(); i < width; i += kPoolThreads) {
    covers[i] = CoverOf(s.width, columns, columns.first + i);
  }
  if (inside) {
    for (int p = 0, q = lane; p < rows.windows;) {
      if (q >= columns.windows) {
        q -= columns.windows;
        ++p;
        continue;
      }
      maxima[(p * columns.windows + q) * t.depth + pack] =
          MaximaOf<T, kWidth>(s, from, rows.first_window + p, columns.first_window + q).positions;
      q += lanes;
    }
  }
  __syncthreads();
  if (!inside) return;

  int h = rows.first - 1;
  Cover row = {};
  for (int w = width + lane; true; w += lanes) {
    while (w >= width) {
      w -= width;
      if (++h >= rows.end) return;
      row = CoverOf(s.height, rows, h);
    }
    const Cover column = covers[w];
    // Of this position in a window that begins at (0, 0).
    const int place_h = h + s.height.pad - rows.first_window * s.height.stride;
    const int place_w = columns.first + w + s.width.pad - columns.first_window * s.width.stride;
    float sum[kWidth] = {};
    for (int p = row.first; p < row.last; ++p) {
      for (int q = column.first; q < column.last; ++q) {
        const Positions<kWidth> maximum = maxima[(p * columns.windows + q) * t.depth + pack];
        const int mine =
            (place_h - p * s.height.stride) * s.width.window + place_w - q * s.width.stride;
        const int64_t at =
            static_cast<int64_t>(rows.first_window + p) * s.width.output + columns.first_window + q;
        const auto gradient = LoadPack<kWidth>(gradients + at * s.channels);
#pragma unroll
        for (int c = 0; c < kWidth; ++c) {
          if (maximum.at[c] == mine) sum[c] += gradient.get(c);
        }
      }
    }
    Pack<T, kWidth> out;
#pragma unroll
    for (int c = 0; c < kWidth; ++c) out.set(c, sum[c]);
    StorePack<kWidth>(
        out, to + (static_cast<int64_t>(h) * s.width.input + columns.first + w) * s.channels);
  }
}

// How many positions window p has.
__device__ __forceinline__ int WindowSize(const PoolAxis& axis, int p) {
  return WindowLast(axis, p) - WindowFirst(axis, p);
}

__device__ __forceinline__ float WindowCount(const PoolShape& s, int p, int q) {
  return static_cast<float>(int64_t{WindowSize(s.height, p)} * WindowSize(s.width, q));
}

// Rows of y.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kPoolThreads)
    AverageRows(PoolShape s, int packs, const T* __restrict__ x, T* __restrict__ y) {
  const int64_t n = blockIdx.x / static_cast<unsigned>(s.height.output);
  const int p = static_cast<int>(blockIdx.x % static_cast<unsigned>(s.height.output));
  const T* const sample = x + n * s.height.input * s.width.input * s.channels;
  T* const to = y + static_cast<int64_t>(blockIdx.x) * s.width.output * s.channels;
  const int last_h = WindowLast(s.height, p);
  for (int i = ThreadOfRow(); i < s.width.output * packs; i += ThreadsOfRow()) {
    const int q = i / packs;
    const int64_t channel = (i - q * packs) * kWidth;
    const int last_w = WindowLast(s.width, q);
    float sum[kWidth] = {};
    for (int h = WindowFirst(s.height, p); h < last_h; ++h) {
      const T* const row = sample + static_cast<int64_t>(h) * s.width.input * s.channels + channel;
      for (int w = WindowFirst(s.width, q); w < last_w; ++w) {
        const auto in = LoadPack<kWidth>(row + w * s.channels);
#pragma unroll
        for (int c = 0; c < kWidth; ++c) sum[c] += in.get(c);
      }
    }
    const float count = WindowCount(s, p, q);
    Pack<T, kWidth> out;
#pragma unroll
    for (int c = 0; c < kWidth; ++c) out.set(c, sum[c] / count);
    StorePack<kWidth>(out, to + q * s.channels + channel);
  }
}

// Rows of x.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kPoolThreads)
    SpreadRows(PoolShape s, int packs, const T* __restrict__ dy, T* __restrict__ dx) {
  const int64_t n = blockIdx.x / static_cast<unsigned>(s.height.input);
  const int h = static_cast<int>(blockIdx.x % static_cast<unsigned>(s.height.input));
  const T* const sample = dy + n * s.height.output * s.width.output * s.channels;
  T* const to = dx + static_cast<int64_t>(blockIdx.x) * s.width.input * s.channels;
  const int last_p = CoverLast(s.height, h);
  for (int i = ThreadOfRow(); i < s.width.input * packs; i += ThreadsOfRow()) {
    const int w = i / packs;
    const int64_t channel = (i - w * packs) * kWidth;
    const int last_q = CoverLast(s.width, w);
    float sum[kWidth] = {};
    for (int p = CoverFirst(s.height, h); p < last_p; ++p) {
      const T* const row = sample + static_cast<int64_t>(p) * s.width.output * s.channels + channel;
      for (int q = CoverFirst(s.width, w); q < last_q; ++q) {
        const auto in = LoadPack<kWidth>(row + q * s.channels);
        const float count = WindowCount(s, p, q);
#pragma unroll
        for (int c = 0; c < kWidth; ++c) sum[c] += in.get(c) / count;
      }
    }
    Pack<T, kWidth> out;
#pragma unroll
    for (int c = 0; c < kWidth; ++c) out.set(c, sum[c]);
    StorePack<kWidth>(out, to + w * s.channels + channel);
  }
}

bool Tiles(const PoolAxis& axis) {
  return axis.stride == axis.window && axis.pad == 0 &&
         int64_t{axis.output} * axis.window >= axis.input;
}

// Whole warps, no more than the row has work for.
dim3 ThreadsFor(int row_packs) {
  const int64_t wanted = CeilDiv(row_packs, 32) * 32;
  return dim3(static_cast<unsigned>(wanted < kPoolThreads ? wanted : kPoolThreads));
}

template <typename T, int kWidth>
cudaError_t Pool(const PoolShape& s, const T* x, T* y, cudaStream_t stream) {
  const auto packs = static_cast<int>(PacksOf(s.channels, kWidth));
  return Enqueue(PoolRows<T, kWidth>, s.samples * s.height.output,
                 ThreadsFor(packs * s.width.output), stream, s, packs, x, y);
}

template <typename T, int kWidth>
cudaError_t Gradient(const PoolShape& s, const T* x, const T* y, const T* dy, T* dx,
                     cudaStream_t stream) {
  const auto packs = static_cast<int>(PacksOf(s.channels, kWidth));
  if (Tiles(s.height) && Tiles(s.width)) {
    return Enqueue(ScatterTiles<T, kWidth>, s.samples * s.height.output,
                   ThreadsFor(packs * s.width.output), stream, s, packs, x, y, dy, dx);
  }
  OverlapTiles tiles;
  if (!CutOverlapping(s, kWidth, &tiles)) return cudaErrorNotSupported;
  return Enqueue(GatherTiles<T, kWidth>, tiles.blocks(), dim3(kPoolThreads), stream, tiles, x, dy,
                 dx);
}

template <typename T, int kWidth>
cudaError_t AverageWindows(const PoolShape& s, const T* x, T* y, cudaStream_t stream) {
  const auto packs = static_cast<int>(PacksOf(s.channels, kWidth));
  return Enqueue(AverageRows<T, kWidth>, s.samples * s.height.output,
                 ThreadsFor(packs * s.width.output), stream, s, packs, x, y);
}

template <typename T, int kWidth>
cudaError_t SpreadWindows(const PoolShape& s, const T* dy, T* dx, cudaStream_t stream) {
  const auto packs = static_cast<int>(PacksOf(s.channels, kWidth));
  return Enqueue(SpreadRows<T, kWidth>, s.samples * s.height.input,
                 ThreadsFor(packs * s.width.input), stream, s, packs, dy, dx);
}

}  // namespace

template <typename T>
cudaError_t LaunchMaxPool(const PoolShape& shape, const T* x, T* y, cudaStream_t stream) {
  const bool whole = shape.channels % kPackWidth<T> == 0;
  return (whole ? Pool<T, kPackWidth<T>> : Pool<T, 1>)(shape, x, y, stream);
}

template <typename T>
bool CanPoolGradient(const PoolShape& shape) {
  if (Tiles(shape.height) && Tiles(shape.width)) return true;
  OverlapTiles tiles;
  return CutOverlapping(shape, shape.channels % kPackWidth<T> == 0 ? kPackWidth<T> : 1, &tiles);
}

template <typename T>
cudaError_t LaunchMaxPoolGradient(const PoolShape& shape, const T* x, const T* y, const T* dy,
                                  T* dx, cudaStream_t stream) {
  const bool whole = shape.channels % kPackWidth<T> == 0;
  return (whole ? Gradient<T, kPackWidth<T>> : Gradient<T, 1>)(shape, x, y, dy, dx, stream);
}

template <typename T>
cudaError_t LaunchAveragePool(const PoolShape& shape, const T* x, T* y, cudaStream_t stream) {
  const bool whole = shape.channels % kPackWidth<T> == 0;
  return (whole ? AverageWindows<T, kPackWidth<T>> : AverageWindows<T, 1>)(shape, x, y, stream);
}

template <typename T>
cudaError_t LaunchAveragePoolGradient(const PoolShape& shape, const T* dy, T* dx,
                                      cudaStream_t stream) {
  const bool whole = shape.channels % kPackWidth<T> == 0;
  return (whole ? SpreadWindows<T, kPackWidth<T>> : SpreadWindows<T, 1>)(shape, dy, dx, stream);
}

#define RING_INSTANTIATE_POOL(T)                                                                 \
  template cudaError_t LaunchMaxPool(const PoolShape&, const T*, T*, cudaStream_t);              \
  template bool CanPoolGradient<T>(const PoolShape&);                                            \
  template cudaError_t LaunchMaxPoolGradient(const PoolShape&, const T*, const T*, const T*, T*, \
                                             cudaStream_t);                                      \
  template cudaError_t LaunchAveragePool(const PoolShape&, const T*, T*, cudaStream_t);          \
  template cudaError_t LaunchAveragePoolGradient(const PoolShape&, const T*, T*, cudaStream_t);
RING_INSTANTIATE_POOL(float)
RING_INSTANTIATE_POOL(__nv_bfloat16)
RING_INSTANTIATE_POOL(__half)
#undef RING_INSTANTIATE_POOL

}  // namespace ringmaster::cuda
