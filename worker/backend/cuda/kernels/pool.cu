// A block takes one row of y (or of x: see below) with all its channels, a thread one pack of
// channels of one position. The gradient has two ways: where each element of x lies in exactly one
// window, the thread of the window writes them all; elsewhere the thread of an element of x looks
// at the windows over it, in order, so that nothing is written twice.
#include "worker/backend/cuda/kernels/pool.h"

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

template <typename T, int kWidth>
__global__ void __launch_bounds__(kPoolThreads)
    PoolRows(PoolShape s, int packs, const T* __restrict__ x, T* __restrict__ y) {
  const int64_t n = blockIdx.x / static_cast<unsigned>(s.height.output);
  const int p = static_cast<int>(blockIdx.x % static_cast<unsigned>(s.height.output));
  const T* const sample = x + n * s.height.input * s.width.input * s.channels;
  T* const to = y + static_cast<int64_t>(blockIdx.x) * s.width.output * s.channels;
  const int first_h = WindowFirst(s.height, p);
  const int last_h = WindowLast(s.height, p);
  for (int i = ThreadOfRow(); i < s.width.output * packs; i += ThreadsOfRow()) {
    const int q = i / packs;
    const int64_t channel = (i - q * packs) * kWidth;
    const int first_w = WindowFirst(s.width, q);
    const int last_w = WindowLast(s.width, q);
    Pack<T, kWidth> best = {};
    for (int h = first_h; h < last_h; ++h) {
      const T* const row = sample + static_cast<int64_t>(h) * s.width.input * s.channels + channel;
      for (int w = first_w; w < last_w; ++w) {
        const auto candidate = LoadPack<kWidth>(row + w * s.channels);
        const bool first = h == first_h && w == first_w;
#pragma unroll
        for (int c = 0; c < kWidth; ++c) {
          if (first || candidate.get(c) > best.get(c)) best.elements[c] = candidate.elements[c];
        }
      }
    }
    StorePack<kWidth>(best, to + q * s.channels + channel);
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

// Bit c: some position of window (p, q) before (h, w) holds the maximum of channel c too.
template <typename T, int kWidth>
__device__ unsigned TakenBefore(const PoolShape& s, const T* sample, int p, int q, int h, int w,
                                const Pack<T, kWidth>& maximum) {
  unsigned taken = 0;
  const int first_w = WindowFirst(s.width, q);
  const int last_w = WindowLast(s.width, q);
  for (int i = WindowFirst(s.height, p); i <= h; ++i) {
    const T* const row = sample + static_cast<int64_t>(i) * s.width.input * s.channels;
    const int end = i == h ? w : last_w;
    for (int j = first_w; j < end; ++j) {
      const auto earlier = LoadPack<kWidth>(row + j * s.channels);
#pragma unroll
      for (int c = 0; c < kWidth; ++c) {
        if (earlier.get(c) == maximum.get(c)) taken |= 1U << c;
      }
    }
  }
  return taken;
}

// Any windows: rows of x.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kPoolThreads)
    GatherRows(PoolShape s, int packs, const T* __restrict__ x, const T* __restrict__ y,
               const T* __restrict__ dy, T* __restrict__ dx) {
  const int64_t n = blockIdx.x / static_cast<unsigned>(s.height.input);
  const int h = static_cast<int>(blockIdx.x % static_cast<unsigned>(s.height.input));
  const int64_t sample = n * s.height.input * s.width.input * s.channels;
  const int64_t output = n * s.height.output * s.width.output * s.channels;
  const int last_p = CoverLast(s.height, h);
  for (int i = ThreadOfRow(); i < s.width.input * packs; i += ThreadsOfRow()) {
    const int w = i / packs;
    const int64_t channel = (i - w * packs) * kWidth;
    const int64_t at =
        sample + (static_cast<int64_t>(h) * s.width.input + w) * s.channels + channel;
    const auto mine = LoadPack<kWidth>(x + at);
    float sum[kWidth] = {};
    const int last_q = CoverLast(s.width, w);
    for (int p = CoverFirst(s.height, h); p < last_p; ++p) {
      for (int q = CoverFirst(s.width, w); q < last_q; ++q) {
        const int64_t window =
            output + (static_cast<int64_t>(p) * s.width.output + q) * s.channels + channel;
        const auto maximum = LoadPack<kWidth>(y + window);
        unsigned takes = 0;
#pragma unroll
        for (int c = 0; c < kWidth; ++c) {
          if (mine.get(c) == maximum.get(c)) takes |= 1U << c;
        }
        if (takes == 0) continue;
        takes &= ~TakenBefore<T, kWidth>(s, x + sample + channel, p, q, h, w, maximum);
        const auto gradient = LoadPack<kWidth>(dy + window);
#pragma unroll
        for (int c = 0; c < kWidth; ++c) {
          if ((takes >> c & 1U) != 0) sum[c] += gradient.get(c);
        }
      }
    }
    Pack<T, kWidth> out;
#pragma unroll
    for (int c = 0; c < kWidth; ++c) out.set(c, sum[c]);
    StorePack<kWidth>(out, dx + at);
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
  return Enqueue(GatherRows<T, kWidth>, s.samples * s.height.input,
                 ThreadsFor(packs * s.width.input), stream, s, packs, x, y, dy, dx);
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
  template cudaError_t LaunchMaxPoolGradient(const PoolShape&, const T*, const T*, const T*, T*, \
                                             cudaStream_t);                                      \
  template cudaError_t LaunchAveragePool(const PoolShape&, const T*, T*, cudaStream_t);          \
  template cudaError_t LaunchAveragePoolGradient(const PoolShape&, const T*, T*, cudaStream_t);
RING_INSTANTIATE_POOL(float)
RING_INSTANTIATE_POOL(__nv_bfloat16)
RING_INSTANTIATE_POOL(__half)
#undef RING_INSTANTIATE_POOL

// A block takes some packs of channels of one sample, a lane of its threads every so many
// positions.

namespace {

constexpr int kImageThreads = 256;
constexpr int kLanePositions = 8;  // that a lane should have at least
constexpr int kMaxLanes = 32;
constexpr int kUnroll = 4;

// Packs and lanes of a block, both powers of two, and the blocks of one sample.
struct ImageTiles {
  ImageShape shape;
  int64_t packs;
  int64_t tiles;
  int tile_packs, lanes;
};

ImageTiles Cut(const ImageShape& shape, int width) {
  ImageTiles cut = {shape, PacksOf(shape.channels, width), 0, 1, 1};
  while (cut.lanes < kMaxLanes && shape.positions >= int64_t{2} * cut.lanes * kLanePositions) {
    cut.lanes *= 2;
  }
  while (cut.tile_packs * cut.lanes < kImageThreads &&
         (cut.tile_packs < cut.packs || cut.tile_packs * cut.lanes < 32)) {
    cut.tile_packs *= 2;
  }
  cut.tiles = CeilDiv(cut.packs, cut.tile_packs);
  return cut;
}

// This thread's first channel, its lane and its sample.
struct ImagePlace {
  int64_t sample, channel;
  int lane;
  bool inside;

  __device__ ImagePlace(const ImageTiles& cut, int width) {
    const auto tiles = static_cast<unsigned>(cut.tiles);
    const auto tile_packs = static_cast<unsigned>(cut.tile_packs);
    const int64_t pack =
        static_cast<int64_t>(blockIdx.x % tiles) * tile_packs + threadIdx.x % tile_packs;
    sample = blockIdx.x / tiles;
    channel = pack * width;
    lane = static_cast<int>(threadIdx.x / tile_packs);
    inside = pack < cut.packs;
  }
};

// What becomes of all positions of a channel: of a sum that begins with 0 the mean,
struct MeanOfImage {
  static constexpr bool kFromFirst = false;
  __device__ static float Join(float sum, float other) { return sum + other; }
  __device__ static float Result(float sum, int64_t positions) {
    return sum / static_cast<float>(positions);
  }
};
// or the maximum, which begins with the first one on every lane, so that NaN there stays.
struct MaximumOfImage {
  static constexpr bool kFromFirst = true;
  __device__ static float Join(float best, float other) { return other > best ? other : best; }
  __device__ static float Result(float best, int64_t) { return best; }
};

template <typename Fold, typename T, int kWidth>
__global__ void __launch_bounds__(kImageThreads)
    FoldImage(ImageTiles cut, const T* __restrict__ x, T* __restrict__ y) {
  __shared__ float shared[kWidth][kImageThreads];
  const ImagePlace place(cut, kWidth);
  const int64_t positions = cut.shape.positions;
  const int64_t channels = cut.shape.channels;
  float fold[kWidth] = {};
  if (place.inside) {
    const T* const from = x + place.sample * positions * channels + place.channel;
    if (Fold::kFromFirst) {
      const auto in = LoadPack<kWidth>(from);
#pragma unroll
      for (int c = 0; c < kWidth; ++c) fold[c] = in.get(c);
    }
#pragma unroll kUnroll
    for (int64_t p = place.lane; p < positions; p += cut.lanes) {
      const auto in = LoadPack<kWidth>(from + p * channels);
#pragma unroll
      for (int c = 0; c < kWidth; ++c) fold[c] = Fold::Join(fold[c], in.get(c));
    }
  }
  const int mine = static_cast<int>(threadIdx.x);
  for (int half = cut.lanes / 2; half > 0; half /= 2) {
#pragma unroll
    for (int c = 0; c < kWidth; ++c) shared[c][mine] = fold[c];
    __syncthreads();
    if (place.lane < half) {
#pragma unroll
      for (int c = 0; c < kWidth; ++c) {
        fold[c] = Fold::Join(fold[c], shared[c][mine + half * cut.tile_packs]);
      }
    }
    __syncthreads();
  }
  if (!place.inside || place.lane != 0) return;
  Pack<T, kWidth> out;
#pragma unroll
  for (int c = 0; c < kWidth; ++c) out.set(c, Fold::Result(fold[c], positions));
  StorePack<kWidth>(out, y + place.sample * channels + place.channel);
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kImageThreads)
    Spread(ImageTiles cut, const T* __restrict__ dy, T* __restrict__ dx) {
  const ImagePlace place(cut, kWidth);
  if (!place.inside) return;
  const int64_t positions = cut.shape.positions;
  const int64_t channels = cut.shape.channels;
  const auto in = LoadPack<kWidth>(dy + place.sample * channels + place.channel);
  Pack<T, kWidth> out;
#pragma unroll
  for (int c = 0; c < kWidth; ++c) out.set(c, in.get(c) / static_cast<float>(positions));
  T* const to = dx + place.sample * positions * channels + place.channel;
  for (int64_t p = place.lane; p < positions; p += cut.lanes) {
    StorePack<kWidth>(out, to + p * channels);
  }
}

dim3 ThreadsOf(const ImageTiles& cut) {
  return dim3(static_cast<unsigned>(cut.tile_packs * cut.lanes));
}

template <typename Fold, typename T, int kWidth>
cudaError_t Forward(const ImageShape& shape, const T* x, T* y, cudaStream_t stream) {
  const ImageTiles cut = Cut(shape, kWidth);
  return Enqueue(FoldImage<Fold, T, kWidth>, shape.samples * cut.tiles, ThreadsOf(cut), stream, cut,
                 x, y);
}

template <typename T, int kWidth>
cudaError_t Backward(const ImageShape& shape, const T* dy, T* dx, cudaStream_t stream) {
  const ImageTiles cut = Cut(shape, kWidth);
  return Enqueue(Spread<T, kWidth>, shape.samples * cut.tiles, ThreadsOf(cut), stream, cut, dy, dx);
}

}  // namespace

template <typename T>
cudaError_t LaunchGlobalMaxPool(const ImageShape& shape, const T* x, T* y, cudaStream_t stream) {
  const bool whole = shape.channels % kPackWidth<T> == 0;
  return (whole ? Forward<MaximumOfImage, T, kPackWidth<T>>
                : Forward<MaximumOfImage, T, 1>)(shape, x, y, stream);
}

template <typename T>
cudaError_t LaunchGlobalAveragePool(const ImageShape& shape, const T* x, T* y,
                                    cudaStream_t stream) {
  const bool whole = shape.channels % kPackWidth<T> == 0;
  return (whole ? Forward<MeanOfImage, T, kPackWidth<T>> : Forward<MeanOfImage, T, 1>)(shape, x, y,
                                                                                       stream);
}

template <typename T>
cudaError_t LaunchGlobalAveragePoolGradient(const ImageShape& shape, const T* dy, T* dx,
                                            cudaStream_t stream) {
  const bool whole = shape.channels % kPackWidth<T> == 0;
  return (whole ? Backward<T, kPackWidth<T>> : Backward<T, 1>)(shape, dy, dx, stream);
}

#define RING_INSTANTIATE_IMAGE(T)                                                              \
  template cudaError_t LaunchGlobalMaxPool(const ImageShape&, const T*, T*, cudaStream_t);     \
  template cudaError_t LaunchGlobalAveragePool(const ImageShape&, const T*, T*, cudaStream_t); \
  template cudaError_t LaunchGlobalAveragePoolGradient(const ImageShape&, const T*, T*,        \
                                                       cudaStream_t);
RING_INSTANTIATE_IMAGE(float)
RING_INSTANTIATE_IMAGE(__nv_bfloat16)
RING_INSTANTIATE_IMAGE(__half)
#undef RING_INSTANTIATE_IMAGE

}  // namespace ringmaster::cuda
