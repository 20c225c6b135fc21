// Pools over whole images. A block takes some packs of channels of one sample, a lane of its
// threads every so many positions.
#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/packs.h"
#include "worker/backend/cuda/kernels/windows.h"

namespace ringmaster::cuda {
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
