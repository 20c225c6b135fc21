// The gradient of batch_norm in two passes over x and dy, each of which computes what of dy passes
// its relu, relu6 or swish: one sums by channel, in two levels like the statistics, the other
// applies, backwards. Where there is a residual, whose gradient is what passes, the first writes
// that and the second reads it.
#include "common/graph/ops/unary.h"
#include "worker/backend/cuda/kernels/batch_norm_tiles.h"
#include "worker/backend/cuda/kernels/normalization.h"

namespace ringmaster::cuda {
namespace {

constexpr int kNormGradientThreads = ChannelTiles::kThreads;
// What of dy is the gradient behind the activation.
enum class Passing : uint8_t {
  kAll,
  kAgain,         // what passed a relu, whose y is computed once more
  kAgain6,        // likewise a relu6
  kSloped,        // what passed a swish: dy times the slope at its input, computed once more
  kWritten,       // what passed by y, which is read; it is written
  kWrittenOfTwo,  // likewise, of the sum of two addends
};

// Rows that a thread loads at once, of two arrays or three, or of four.
template <Passing kPassing>
inline constexpr int kNormGradientRows = kPassing == Passing::kWrittenOfTwo ? 2 : 4;

// Whether what lies before the activation is computed once more.
template <Passing kPassing>
inline constexpr bool kIsAgain =
    kPassing == Passing::kAgain || kPassing == Passing::kAgain6 || kPassing == Passing::kSloped;

// What the activation let pass of an element of one pack of channels.
template <typename T, int kWidth, Passing kPassing>
struct GradientMask {
  Pack<float, kWidth> means, scales, betas;

  // dy, 0 where y, as it was stored in T, is at a bound of the activation; by a swish, sloped.
  __device__ __forceinline__ float Masked(float dy, float deviation, int c) const {
    if constexpr (!kIsAgain<kPassing>) return dy;
    const float value = Scaled(deviation, scales.get(c), betas.get(c));
    if constexpr (kPassing == Passing::kSloped) {
      return static_cast<float>(graph::Swish{}.Backward(Real(value), Real(dy)));
    }
    const float passed = kPassing == Passing::kAgain6 && value >= kRoundsToSix<T> ? 0.0F : dy;
    return value <= kRoundsToZero<T> ? 0.0F : passed;
  }
};

// Those of `kRows` rows from `from` on that are there.
template <int kRows, int kWidth, typename T>
__device__ __forceinline__ void LoadRows(Pack<T, kWidth> (&rows)[kRows], const T* from,
                                         int64_t stride, int64_t there) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (i < there) rows[i] = LoadPack<kWidth>(from + i * stride);
  }
}

// How many of the rows row, row + lanes, ... lie before `end`; more than kRows count as kRows.
template <int kRows>
__device__ __forceinline__ int64_t RowsThere(int64_t row, int64_t lanes, int64_t end) {
  if (row + (kRows - 1) * lanes < end) return kRows;
  return (end - row + lanes - 1) / lanes;
}

// Lane 0 of each pack gets the sums of all its lanes, by halves.
template <int kWidth>
__device__ void SumLanes(const ChannelTiles& tiles, float (&first)[kWidth],
                         float (&second)[kWidth]) {
  __shared__ float firsts[kWidth][kNormGradientThreads];
  __shared__ float seconds[kWidth][kNormGradientThreads];
  const int mine = static_cast<int>(threadIdx.x);
  for (int half = tiles.lanes() / 2; half > 0; half /= 2) {
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      firsts[c][mine] = first[c];
      seconds[c][mine] = second[c];
    }
    __syncthreads();
    if (mine < half * tiles.tile_packs) {
      const int other = mine + half * tiles.tile_packs;
#pragma unroll
      for (int c = 0; c < kWidth; ++c) {
        first[c] += firsts[c][other];
        second[c] += seconds[c][other];
      }
    }
    __syncthreads();
  }
}

// The scales of a block's channels, each computed by one of its threads.
__device__ __forceinline__ const float* ScalesOfTile(const ChannelTiles& tiles,
                                                     const TilePlace& place, float epsilon,
                                                     const float* gamma, const float* variance) {
  __shared__ float scales[kNormGradientThreads];
  const int64_t channel =
      place.tile * tiles.tile_packs * tiles.width + static_cast<int64_t>(threadIdx.x);
  if (static_cast<int>(threadIdx.x) < tiles.tile_packs * tiles.width && channel < tiles.channels) {
    scales[threadIdx.x] = ScaleOf(gamma, variance[channel], epsilon, channel);
  }
  __syncthreads();
  return scales + static_cast<int>(threadIdx.x) % tiles.tile_packs * tiles.width;
}

template <typename T>
struct GradientSums {
  const T *x, *dy, *more_dy, *y;
  T* passed;
  float epsilon;
  const float *gamma, *beta, *mean, *variance;
  float* pieces;
};

// Sums of dy and of dy (x - mean) over each piece, by channel.
template <typename T, int kWidth, Passing kPassing>
__global__ void __launch_bounds__(kNormGradientThreads, 2)
    PieceGradients(ChannelTiles tiles, GradientSums<T> g) {
  constexpr int kRows = kNormGradientRows<kPassing>;
  constexpr bool kOfTwo = kPassing == Passing::kWrittenOfTwo;
  constexpr bool kWrites = kOfTwo || kPassing == Passing::kWritten;
  const TilePlace place(tiles, blockIdx.x);
  GradientMask<T, kWidth, kPassing> mask = {};
  if constexpr (kIsAgain<kPassing>) {
    const float* const scales = ScalesOfTile(tiles, place, g.epsilon, g.gamma, g.variance);
    if (place.inside) {
      mask.scales = LoadPack<kWidth>(scales);
      mask.betas = LoadOrZero<kWidth>(g.beta, place.channel);
    }
  }
  const int64_t lanes = tiles.lanes();
  const int64_t stride = lanes * tiles.channels;
  float sum[kWidth] = {};
  float product[kWidth] = {};
  if (place.inside) {
    mask.means = LoadPack<kWidth>(g.mean + place.channel);
    for (int64_t row = place.row; row < place.end; row += lanes * kRows) {
      const int64_t at = row * tiles.channels + place.channel;
      const int64_t n = RowsThere<kRows>(row, lanes, place.end);
      Pack<T, kWidth> x[kRows] = {}, dy[kRows] = {};
      Pack<T, kWidth> more_dy[kOfTwo ? kRows : 1] = {}, y[kWrites ? kRows : 1] = {};
      LoadRows(x, g.x + at, stride, n);
      LoadRows(dy, g.dy + at, stride, n);
      if constexpr (kOfTwo) LoadRows(more_dy, g.more_dy + at, stride, n);
      if constexpr (kWrites) LoadRows(y, g.y + at, stride, n);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (i >= n) break;
        Pack<T, kWidth> passed;
#pragma unroll
        for (int c = 0; c < kWidth; ++c) {
          const float deviation = x[i].get(c) - mask.means.get(c);
          float gradient = mask.Masked(dy[i].get(c), deviation, c);
          if constexpr (kOfTwo) gradient += more_dy[i].get(c);
          if constexpr (kWrites) {
            passed.set(c, y[i].get(c) <= 0 ? 0.0F : gradient);
            gradient = passed.get(c);
          }
          sum[c] += gradient;
          product[c] = fmaf(gradient, deviation, product[c]);
        }
        if constexpr (kWrites) StorePack<kWidth>(passed, g.passed + at + i * stride);
      }
    }
  }
  SumLanes(tiles, sum, product);
  if (!place.inside || threadIdx.x >= static_cast<unsigned>(tiles.tile_packs)) return;
  float* const to = g.pieces + 2 * place.piece * tiles.channels + place.channel;
#pragma unroll
  for (int c = 0; c < kWidth; ++c) {
    to[c] = sum[c];
    to[tiles.channels + c] = product[c];
  }
}

struct GradientFinish {
  const float *pieces, *gamma, *variance;
  float *dgamma, *dbeta, *scale, *offset, *slope;
};

// dgamma = sum(dy (x - mean)) / sqrt(variance + epsilon), dbeta = sum(dy), and the coefficients of
//   dx = scale (dy - dbeta / n - (x - mean) dgamma / (n sqrt(variance + epsilon)))
//      = scale dy - offset - slope (x - mean).
__global__ void __launch_bounds__(kFinishChannels* kFinishLanes)
    FinishGradient(ChannelTiles tiles, float epsilon, GradientFinish g) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kFinishChannels + threadIdx.x;
  const bool inside = channel < tiles.channels;
  const int64_t pieces = inside ? tiles.pieces : 0;
  double my_sum = 0, my_product = 0;
#pragma unroll kFinishBatch
  for (int64_t piece = threadIdx.y; piece < pieces; piece += kFinishLanes) {
    const float* const at = g.pieces + 2 * piece * tiles.channels + channel;
    my_sum += static_cast<double>(at[0]);
    my_product += static_cast<double>(at[tiles.channels]);
  }
  const double sum = SumFinishLanes(my_sum);
  const double product = SumFinishLanes(my_product);
  if (!inside || threadIdx.y != 0) return;
  const double inverse =
      1 / sqrt(static_cast<double>(g.variance[channel]) + static_cast<double>(epsilon));
  const double gamma = g.gamma == nullptr ? 1 : static_cast<double>(g.gamma[channel]);
  const double scale = gamma * inverse / static_cast<double>(tiles.rows);
  if (g.dgamma != nullptr) g.dgamma[channel] = static_cast<float>(product * inverse);
  if (g.dbeta != nullptr) g.dbeta[channel] = static_cast<float>(sum);
  g.scale[channel] = ScaleOf(g.gamma, g.variance[channel], epsilon, channel);
  g.offset[channel] = static_cast<float>(scale * sum);
  g.slope[channel] = static_cast<float>(scale * product * inverse * inverse);
}

template <typename T>
struct GradientApplication {
  const T *x, *dy;
  const float *beta, *mean, *scale, *offset, *slope;
  T* dx;
};

template <typename T, int kWidth, Passing kPassing>
__global__ void __launch_bounds__(kNormGradientThreads, 2)
    ApplyGradient(ChannelTiles tiles, GradientApplication<T> g) {
  constexpr int kRows = kNormGradientRows<kPassing>;
  const TilePlace place(tiles, gridDim.x - 1 - blockIdx.x);
  if (!place.inside) return;
  GradientMask<T, kWidth, kPassing> mask = {};
  mask.means = LoadPack<kWidth>(g.mean + place.channel);
  mask.scales = LoadPack<kWidth>(g.scale + place.channel);
  if constexpr (kIsAgain<kPassing>) {
    mask.betas = LoadOrZero<kWidth>(g.beta, place.channel);
  }
  const auto offsets = LoadPack<kWidth>(g.offset + place.channel);
  const auto slopes = LoadPack<kWidth>(g.slope + place.channel);
  const int64_t lanes = tiles.lanes();
  const int64_t stride = lanes * tiles.channels;
  for (int64_t row = place.row; row < place.end; row += lanes * kRows) {
    const int64_t at = row * tiles.channels + place.channel;
    const int64_t n = RowsThere<kRows>(row, lanes, place.end);
    Pack<T, kWidth> x[kRows] = {}, dy[kRows] = {};
    LoadRows(x, g.x + at, stride, n);
    LoadRows(dy, g.dy + at, stride, n);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (i >= n) break;
      Pack<T, kWidth> out;
#pragma unroll
      for (int c = 0; c < kWidth; ++c) {
        const float deviation = x[i].get(c) - mask.means.get(c);
        const float gradient = mask.Masked(dy[i].get(c), deviation, c);
        const float centred = fmaf(mask.scales.get(c), gradient, -offsets.get(c));
        out.set(c, fmaf(-slopes.get(c), deviation, centred));
      }
      StorePack<kWidth>(out, g.dx + at + i * stride);
    }
  }
}

template <typename T, int kWidth, Passing kPassing>
cudaError_t Gradient(const BatchNormShape& shape, const BatchNormGradientOperands<T>& o,
                     cudaStream_t stream) {
  const ChannelTiles cut = CutForSums(shape, kWidth);
  const BatchNormScratch scratch(cut, o.workspace);
  const GradientSums<T> sums = {o.x,         o.dy,          o.more_dy,     o.y,
                                o.dresidual, shape.epsilon, o.gamma,       o.beta,
                                o.mean,      o.variance,    scratch.pieces};
  cudaError_t error = Enqueue(PieceGradients<T, kWidth, kPassing>, cut.blocks(),
                              dim3(kNormGradientThreads), stream, cut, sums);
  if (error != cudaSuccess) return error;
  const GradientFinish finish = {scratch.pieces, o.gamma,       o.variance,     o.dgamma,
                                 o.dbeta,        scratch.scale, scratch.offset, scratch.slope};
  error = Enqueue(FinishGradient, FinishBlocks(shape), dim3(kFinishChannels, kFinishLanes), stream,
                  cut, shape.epsilon, finish);
  if (error != cudaSuccess) return error;
  constexpr Passing kLeft = kIsAgain<kPassing> ? kPassing : Passing::kAll;
  const GradientApplication<T> application = {o.x,           shape.residual ? o.dresidual : o.dy,
                                              o.beta,        o.mean,
                                              scratch.scale, scratch.offset,
                                              scratch.slope, o.dx};
  const ChannelTiles tiles = CutForRows(shape, kWidth);
  return Enqueue(ApplyGradient<T, kWidth, kLeft>, tiles.blocks(), dim3(kNormGradientThreads),
                 stream, tiles, application);
}

template <typename T, int kWidth>
cudaError_t GradientOf(const BatchNormShape& shape, const BatchNormGradientOperands<T>& operands,
                       cudaStream_t stream) {
  using graph::Activation;
  const auto written = operands.more_dy != nullptr ? Gradient<T, kWidth, Passing::kWrittenOfTwo>
                                                   : Gradient<T, kWidth, Passing::kWritten>;
  const auto gradient =
      shape.residual                           ? written
      : shape.activation == Activation::kSwish ? Gradient<T, kWidth, Passing::kSloped>
      : shape.activation == Activation::kRelu6 ? Gradient<T, kWidth, Passing::kAgain6>
      : shape.activation == Activation::kRelu  ? Gradient<T, kWidth, Passing::kAgain>
                                               : Gradient<T, kWidth, Passing::kAll>;
  return gradient(shape, operands, stream);
}

}  // namespace

template <typename T>
cudaError_t LaunchBatchNormGradient(const BatchNormShape& shape,
                                    const BatchNormGradientOperands<T>& operands,
                                    cudaStream_t stream) {
  return BatchNormWidth(shape, kPackWidth<T>) == 1
             ? GradientOf<T, 1>(shape, operands, stream)
             : GradientOf<T, kPackWidth<T>>(shape, operands, stream);
}

template cudaError_t LaunchBatchNormGradient(const BatchNormShape&,
                                             const BatchNormGradientOperands<float>&, cudaStream_t);
template cudaError_t LaunchBatchNormGradient(const BatchNormShape&,
                                             const BatchNormGradientOperands<__nv_bfloat16>&,
                                             cudaStream_t);
template cudaError_t LaunchBatchNormGradient(const BatchNormShape&,
                                             const BatchNormGradientOperands<__half>&,
                                             cudaStream_t);

}  // namespace ringmaster::cuda
