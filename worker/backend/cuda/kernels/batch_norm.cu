// Statistics in two levels. A block takes a piece of rows: each of its threads reads rows in
// batches that stay in registers, so that deviations are taken from the batch's own mean and x is
// read once; batches, then lanes, are combined as Moments. A second kernel combines the pieces in
// double. Application walks the tensor backwards: its end is what the first pass left in the cache.
#include "worker/backend/cuda/kernels/normalization.h"

#include "common/graph/ops/unary.h"
#include "worker/backend/cuda/kernels/batch_norm_tiles.h"
#include "worker/backend/cuda/kernels/packs.h"

namespace ringmaster::cuda {
namespace {

using graph::Activation;

constexpr int kNormThreads = ChannelTiles::kThreads;
constexpr int kNormBatch = ChannelTiles::kBatch;

// The first `n` rows of a batch.
template <typename T, int kWidth>
__device__ __forceinline__ void AddBatch(const Pack<T, kWidth> (&rows)[kNormBatch], int n,
                                         PackMoments<kWidth>& moments) {
  const auto count = static_cast<float>(n);
  const float share = moments.ShareOf(count);
#pragma unroll
  for (int c = 0; c < kWidth; ++c) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kNormBatch; ++i) sum += i < n ? rows[i].get(c) : 0.0F;
    const float mean = sum / count;
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kNormBatch; ++i) {
      const float deviation = i < n ? rows[i].get(c) - mean : 0.0F;
      squares = fmaf(deviation, deviation, squares);
    }
    moments.Join(c, share, mean, squares);
  }
  moments.count += count;
}

// Lane 0 of each pack gets the moments of all its lanes.
template <int kWidth>
__device__ void CombineLanes(const ChannelTiles& tiles, PackMoments<kWidth>& moments) {
  __shared__ float counts[kNormThreads];
  __shared__ float means[kWidth][kNormThreads];
  __shared__ float squares[kWidth][kNormThreads];
  const int mine = static_cast<int>(threadIdx.x);
  for (int half = tiles.lanes() / 2; half > 0; half /= 2) {
    counts[mine] = moments.count;
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      means[c][mine] = moments.mean[c];
      squares[c][mine] = moments.squares[c];
    }
    __syncthreads();
    const int other = mine + half * tiles.tile_packs;
    if (mine < half * tiles.tile_packs && counts[other] > 0) {
      const float share = moments.ShareOf(counts[other]);
#pragma unroll
      for (int c = 0; c < kWidth; ++c) {
        moments.Join(c, share, means[c][other], squares[c][other]);
      }
      moments.count += counts[other];
    }
    __syncthreads();
  }
}

// Mean and sum of squared deviations of each piece, by channel.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kNormThreads, 2)
    PieceMoments(ChannelTiles tiles, const T* __restrict__ x, float* __restrict__ pieces) {
  const TilePlace place(tiles, blockIdx.x);
  const int64_t lanes = tiles.lanes();
  PackMoments<kWidth> moments;
  if (place.inside) {
    for (int64_t row = place.row; row < place.end; row += lanes * kNormBatch) {
      Pack<T, kWidth> batch[kNormBatch] = {};
      const T* from = x + row * tiles.channels + place.channel;
      if (row + (kNormBatch - 1) * lanes < place.end) {
#pragma unroll
        for (int i = 0; i < kNormBatch; ++i) {
          batch[i] = LoadPack<kWidth>(from + i * lanes * tiles.channels);
        }
        AddBatch(batch, kNormBatch, moments);
      } else {
        int n = 0;
#pragma unroll
        for (int i = 0; i < kNormBatch; ++i) {
          if (row + i * lanes >= place.end) continue;
          batch[i] = LoadPack<kWidth>(from + i * lanes * tiles.channels);
          n = i + 1;
        }
        AddBatch(batch, n, moments);
      }
    }
  }
  CombineLanes(tiles, moments);
  if (!place.inside || threadIdx.x >= static_cast<unsigned>(tiles.tile_packs)) return;
  float* const to = pieces + 2 * place.piece * tiles.channels + place.channel;
#pragma unroll
  for (int c = 0; c < kWidth; ++c) {
    to[c] = moments.mean[c];
    to[tiles.channels + c] = moments.squares[c];
  }
}

// The pieces' moments together: first all means, then all deviations, from the whole's mean.
__global__ void __launch_bounds__(kFinishChannels* kFinishLanes)
    FinishMoments(ChannelTiles tiles, float epsilon, const float* __restrict__ pieces,
                  const float* __restrict__ gamma, float* __restrict__ mean,
                  float* __restrict__ variance, float* __restrict__ scale) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kFinishChannels + threadIdx.x;
  const bool inside = channel < tiles.channels;
  const int64_t pieces_here = inside ? tiles.pieces : 0;
  const float* const means = pieces + channel;
  const float* const squares = means + tiles.channels;
  const int64_t stride = 2 * tiles.channels;
  double sum = 0;
#pragma unroll kFinishBatch
  for (int64_t piece = threadIdx.y; piece < pieces_here; piece += kFinishLanes) {
    sum += static_cast<double>(tiles.rows_of(piece)) * static_cast<double>(means[piece * stride]);
  }
  const double whole = SumFinishLanes(sum) / static_cast<double>(tiles.rows);
  double deviations = 0;
#pragma unroll kFinishBatch
  for (int64_t piece = threadIdx.y; piece < pieces_here; piece += kFinishLanes) {
    const double difference = static_cast<double>(means[piece * stride]) - whole;
    deviations += static_cast<double>(squares[piece * stride]) +
                  static_cast<double>(tiles.rows_of(piece)) * difference * difference;
  }
  const double all = SumFinishLanes(deviations) / static_cast<double>(tiles.rows);
  if (!inside || threadIdx.y != 0) return;
  mean[channel] = static_cast<float>(whole);
  variance[channel] = static_cast<float>(all);
  scale[channel] = ScaleOf(gamma, static_cast<float>(all), epsilon, channel);
}

// scale = gamma / sqrt(variance + epsilon).
__global__ void __launch_bounds__(kNormThreads)
    Scales(int64_t channels, float epsilon, const float* __restrict__ gamma,
           const float* __restrict__ variance, float* __restrict__ scale) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kNormThreads + threadIdx.x;
  if (channel >= channels) return;
  scale[channel] = ScaleOf(gamma, variance[channel], epsilon, channel);
}

// mean and beta may be nullptr: 0.
template <typename T>
struct Normalization {
  const T *x, *residual;
  const float *mean, *scale, *beta;
  T* y;
};

// NaN passes.
template <Activation kActivation>
__device__ __forceinline__ float Activated(float value) {
  if constexpr (kActivation == Activation::kNone) return value;
  if constexpr (kActivation == Activation::kSwish) {
    return static_cast<float>(graph::Swish{}.Forward(Real(value)));
  }
  const float upper = kActivation == Activation::kRelu6 && value >= 6 ? 6.0F : value;
  return value <= 0 ? 0.0F : upper;
}

// y = (x - mean) scale + beta, plus the residual where there is one, behind the activation.
template <typename T, int kWidth, Activation kActivation, bool kResidual>
__global__ void __launch_bounds__(kNormThreads)
    NormalizeRows(ChannelTiles tiles, Normalization<T> n) {
  constexpr int kRows = 4;
  const TilePlace place(tiles, gridDim.x - 1 - blockIdx.x);
  if (!place.inside) return;
  const auto means = LoadOrZero<kWidth>(n.mean, place.channel);
  const auto scales = LoadPack<kWidth>(n.scale + place.channel);
  const auto betas = LoadOrZero<kWidth>(n.beta, place.channel);
  const int64_t lanes = tiles.lanes();
  for (int64_t row = place.row; row < place.end; row += lanes * kRows) {
    const int64_t at = row * tiles.channels + place.channel;
    Pack<T, kWidth> in[kRows] = {};
    Pack<T, kWidth> other[kResidual ? kRows : 1] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (row + i * lanes >= place.end) continue;
      in[i] = LoadPack<kWidth>(n.x + at + i * lanes * tiles.channels);
      if constexpr (kResidual) {
        other[i] = LoadPack<kWidth>(n.residual + at + i * lanes * tiles.channels);
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (row + i * lanes >= place.end) break;
      Pack<T, kWidth> out;
#pragma unroll
      for (int c = 0; c < kWidth; ++c) {
        float value = Scaled(in[i].get(c) - means.get(c), scales.get(c), betas.get(c));
        if constexpr (kResidual) value += other[i].get(c);
        out.set(c, Activated<kActivation>(value));
      }
      StorePack<kWidth>(out, n.y + at + i * lanes * tiles.channels);
    }
  }
}

template <typename T, int kWidth>
cudaError_t Normalize(const BatchNormShape& shape, const Normalization<T>& n, cudaStream_t stream) {
  const ChannelTiles tiles = CutForRows(shape, kWidth);
  auto kernel = shape.residual ? NormalizeRows<T, kWidth, Activation::kNone, true>
                               : NormalizeRows<T, kWidth, Activation::kNone, false>;
  switch (shape.activation) {
    case Activation::kRelu:
      kernel = shape.residual ? NormalizeRows<T, kWidth, Activation::kRelu, true>
                              : NormalizeRows<T, kWidth, Activation::kRelu, false>;
      break;
    case Activation::kRelu6:
      kernel = NormalizeRows<T, kWidth, Activation::kRelu6, false>;
      break;
    case Activation::kSwish:
      kernel = NormalizeRows<T, kWidth, Activation::kSwish, false>;
      break;
    case Activation::kNone:
      break;
  }
  return Enqueue(kernel, tiles.blocks(), dim3(kNormThreads), stream, tiles, n);
}

template <typename T, int kWidth>
cudaError_t TrainingForward(const BatchNormShape& shape, const BatchNormOperands<T>& o, float* mean,
                            float* variance, cudaStream_t stream) {
  const ChannelTiles tiles = CutForSums(shape, kWidth);
  const BatchNormScratch scratch(tiles, o.workspace);
  cudaError_t error = Enqueue(PieceMoments<T, kWidth>, tiles.blocks(), dim3(kNormThreads), stream,
                              tiles, o.x, scratch.pieces);
  if (error != cudaSuccess) return error;
  error = Enqueue(FinishMoments, FinishBlocks(shape), dim3(kFinishChannels, kFinishLanes), stream,
                  tiles, shape.epsilon, scratch.pieces, o.gamma, mean, variance, scratch.scale);
  if (error != cudaSuccess) return error;
  return Normalize<T, kWidth>(shape, {o.x, o.residual, mean, scratch.scale, o.beta, o.y}, stream);
}

}  // namespace

size_t BatchNormWorkspace(const BatchNormShape& shape, size_t element_bytes) {
  const int width = BatchNormWidth(shape, 16 / static_cast<int>(element_bytes));
  return sizeof(float) * static_cast<size_t>(BatchNormScratch::Floats(CutForSums(shape, width)));
}

template <typename T>
cudaError_t LaunchBatchNorm(const BatchNormShape& shape, const BatchNormOperands<T>& operands,
                            float* mean, float* variance, cudaStream_t stream) {
  const bool single = BatchNormWidth(shape, kPackWidth<T>) == 1;
  const auto forward = single ? TrainingForward<T, 1> : TrainingForward<T, kPackWidth<T>>;
  return forward(shape, operands, mean, variance, stream);
}

template <typename T>
cudaError_t LaunchBatchNormInference(const BatchNormShape& shape,
                                     const BatchNormOperands<T>& operands, const float* mean,
                                     const float* variance, cudaStream_t stream) {
  auto* const scale = static_cast<float*>(operands.workspace);
  const cudaError_t error =
      Enqueue(Scales, CeilDiv(shape.channels, kNormThreads), dim3(kNormThreads), stream,
              shape.channels, shape.epsilon, operands.gamma, variance, scale);
  if (error != cudaSuccess) return error;
  const bool single = BatchNormWidth(shape, kPackWidth<T>) == 1;
  const auto normalize = single ? Normalize<T, 1> : Normalize<T, kPackWidth<T>>;
  return normalize(shape, {operands.x, operands.residual, mean, scale, operands.beta, operands.y},
                   stream);
}

template <typename T>
cudaError_t LaunchBatchNormInferenceGradient(const BatchNormShape& shape, const T* dy,
                                             const float* gamma, const float* variance, T* dx,
                                             void* workspace, cudaStream_t stream) {
  const BatchNormOperands<T> operands = {.x = dy,
                                         .residual = nullptr,
                                         .gamma = gamma,
                                         .beta = nullptr,
                                         .y = dx,
                                         .workspace = workspace};
  return LaunchBatchNormInference<T>(shape, operands, nullptr, variance, stream);
}

#define RING_INSTANTIATE_NORM(T)                                                                   \
  template cudaError_t LaunchBatchNorm(const BatchNormShape&, const BatchNormOperands<T>&, float*, \
                                       float*, cudaStream_t);                                      \
  template cudaError_t LaunchBatchNormInference(const BatchNormShape&,                             \
                                                const BatchNormOperands<T>&, const float*,         \
                                                const float*, cudaStream_t);                       \
  template cudaError_t LaunchBatchNormInferenceGradient(                                           \
      const BatchNormShape&, const T*, const float*, const float*, T*, void*, cudaStream_t);
RING_INSTANTIATE_NORM(float)
RING_INSTANTIATE_NORM(__nv_bfloat16)
RING_INSTANTIATE_NORM(__half)
#undef RING_INSTANTIATE_NORM

}  // namespace ringmaster::cuda
