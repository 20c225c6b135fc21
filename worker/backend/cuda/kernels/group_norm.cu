// A team takes a set: a warp a small one, a block a large one. It goes over the set once for each
// sum and once to apply, so that all but the first time it reads from the cache. The gradients of
// gamma and beta are sums by channel, in two levels as those of batch_norm.
#include "worker/backend/cuda/kernels/normalization.h"

#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/packs.h"
#include "worker/backend/cuda/kernels/sums.h"

namespace ringmaster::cuda {
namespace {

constexpr int kTeamWarps = 8;                     // of a block
constexpr int64_t kWarpPacks = 8;                 // of a lane, where a warp takes a set
constexpr int64_t kChannelGradientBlocks = 1024;  // wanted

// kBlock: the whole block is one team.
enum class TeamOf : uint8_t { kWarp, kBlock };

template <TeamOf kTeam>
struct NormTeam {
  static constexpr int kSize = kTeam == TeamOf::kBlock ? kWarpLanes * kTeamWarps : kWarpLanes;

  int64_t set;
  int thread;

  __device__ NormTeam() {
    const auto lane = static_cast<int>(threadIdx.x);
    const auto warp = static_cast<int>(threadIdx.y);
    const auto block = static_cast<int64_t>(blockIdx.x);
    set = kTeam == TeamOf::kBlock ? block : block * kTeamWarps + warp;
    thread = kTeam == TeamOf::kBlock ? warp * kWarpLanes + lane : lane;
  }

  // On every thread, in one order: lanes by halves, then warps.
  __device__ double Sum(double value) const {
    for (int half = kWarpLanes / 2; half > 0; half /= 2) {
      value += __shfl_xor_sync(kAllLanes, value, half);
    }
    if constexpr (kTeam == TeamOf::kBlock) {
      __shared__ double warps[kTeamWarps];
      __syncthreads();  // nobody still reads what the last call left
      if (threadIdx.x == 0) warps[threadIdx.y] = value;
      __syncthreads();
      value = 0;
      for (const double warp : warps) value += warp;
    }
    return value;
  }

  // Calls visit(offset in x, channel) for each pack of the set that is this thread's.
  template <int kWidth, typename Visit>
  __device__ void ForEachPack(const GroupNormShape& s, const Visit& visit) const {
    const int64_t packs = s.channels / kWidth;
    const int64_t row = s.groups * s.channels;
    const int64_t sample = set / s.groups;
    const int64_t channel = (set - sample * s.groups) * s.channels;
    const int64_t first = sample * s.positions * row + channel;
    const int64_t rows_on = kSize / packs;
    const int64_t packs_on = kSize % packs;
    int64_t position = thread / packs;
    int64_t pack = thread % packs;
#pragma unroll 4
    for (int64_t i = thread; i < s.positions * packs; i += kSize) {
      visit(first + position * row + pack * kWidth, channel + pack * kWidth);
      position += rows_on;
      pack += packs_on;
      if (pack >= packs) pack -= packs, ++position;
    }
  }
};

// `from` at a channel, or `otherwise` where there is none.
template <int kWidth>
__device__ __forceinline__ Pack<float, kWidth> LoadOr(const float* from, int64_t channel,
                                                      float otherwise) {
  if (from != nullptr) return LoadPack<kWidth>(from + channel);
  Pack<float, kWidth> pack;
#pragma unroll
  for (int c = 0; c < kWidth; ++c) pack.elements[c] = otherwise;
  return pack;
}

template <typename T, int kWidth, TeamOf kTeam>
__global__ void __launch_bounds__(kWarpLanes* kTeamWarps)
    NormalizeSets(GroupNormShape s, const T* __restrict__ x, const float* __restrict__ gamma,
                  const float* __restrict__ beta, T* __restrict__ y, float* __restrict__ mean,
                  float* __restrict__ inverse) {
  const NormTeam<kTeam> team;
  if (team.set >= s.samples * s.groups) return;  // a whole team
  const auto count = static_cast<double>(s.positions * s.channels);
  double sum = 0;
  team.template ForEachPack<kWidth>(s, [&](int64_t at, int64_t) {
    const auto in = LoadPack<kWidth>(x + at);
    float part = 0;
#pragma unroll
    for (int c = 0; c < kWidth; ++c) part += in.get(c);
    sum += static_cast<double>(part);
  });
  const auto centre = static_cast<float>(team.Sum(sum) / count);
  double squares = 0;
  team.template ForEachPack<kWidth>(s, [&](int64_t at, int64_t) {
    const auto in = LoadPack<kWidth>(x + at);
    float part = 0;
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      const float deviation = in.get(c) - centre;
      part = fmaf(deviation, deviation, part);
    }
    squares += static_cast<double>(part);
  });
  const auto scale = static_cast<float>(1 / sqrt(team.Sum(squares) / count + s.epsilon));
  team.template ForEachPack<kWidth>(s, [&](int64_t at, int64_t channel) {
    const auto in = LoadPack<kWidth>(x + at);
    const auto gammas = LoadOr<kWidth>(gamma, channel, 1.0F);
    const auto betas = LoadOr<kWidth>(beta, channel, 0.0F);
    Pack<T, kWidth> out;
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      out.set(c, fmaf((in.get(c) - centre) * scale, gammas.get(c), betas.get(c)));
    }
    StorePack<kWidth>(out, y + at);
  });
  if (team.thread != 0) return;
  mean[team.set] = centre;
  inverse[team.set] = scale;
}

// dx = r (g - mean(g) - n mean(g n)), g = gamma dy, n the normalized x.
template <typename T, int kWidth, TeamOf kTeam>
__global__ void __launch_bounds__(kWarpLanes* kTeamWarps)
    SetGradients(GroupNormShape s, const T* __restrict__ x, const T* __restrict__ dy,
                 const float* __restrict__ mean, const float* __restrict__ inverse,
                 const float* __restrict__ gamma, T* __restrict__ dx) {
  const NormTeam<kTeam> team;
  if (team.set >= s.samples * s.groups) return;  // a whole team
  const auto count = static_cast<double>(s.positions * s.channels);
  const float centre = mean[team.set];
  const float scale = inverse[team.set];
  double sum = 0, product = 0;
  team.template ForEachPack<kWidth>(s, [&](int64_t at, int64_t channel) {
    const auto in = LoadPack<kWidth>(x + at);
    const auto gradients = LoadPack<kWidth>(dy + at);
    const auto gammas = LoadOr<kWidth>(gamma, channel, 1.0F);
    float part = 0, part_product = 0;
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      const float g = gradients.get(c) * gammas.get(c);
      part += g;
      part_product = fmaf(g, (in.get(c) - centre) * scale, part_product);
    }
    sum += static_cast<double>(part);
    product += static_cast<double>(part_product);
  });
  const auto offset = static_cast<float>(team.Sum(sum) / count);
  const auto slope = static_cast<float>(team.Sum(product) / count);
  team.template ForEachPack<kWidth>(s, [&](int64_t at, int64_t channel) {
    const auto in = LoadPack<kWidth>(x + at);
    const auto gradients = LoadPack<kWidth>(dy + at);
    const auto gammas = LoadOr<kWidth>(gamma, channel, 1.0F);
    Pack<T, kWidth> out;
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      const float normalized = (in.get(c) - centre) * scale;
      const float g = gradients.get(c) * gammas.get(c);
      out.set(c, scale * fmaf(-normalized, slope, g - offset));
    }
    StorePack<kWidth>(out, dx + at);
  });
}

// Sums of dy n and of dy over each piece of rows, by channel. A pack lies in one group.
template <typename T, int kWidth>
__global__ void __launch_bounds__(ChannelTiles::kThreads)
    PieceChannelGradients(GroupNormShape s, ChannelTiles tiles, const T* __restrict__ x,
                          const T* __restrict__ dy, const float* __restrict__ mean,
                          const float* __restrict__ inverse, float* __restrict__ pieces) {
  constexpr int kMostPacks = kWidth == 1 ? 32 : 8;
  __shared__ float of_warps[2][ChannelTiles::kThreads / kWarpLanes][kMostPacks * kWidth];
  const TilePlace place(tiles, blockIdx.x);
  float product[kWidth] = {};
  float sum[kWidth] = {};
  if (place.inside) {
    const int64_t group = place.channel / s.channels;
#pragma unroll 4
    for (int64_t row = place.row; row < place.end; row += tiles.lanes()) {
      const int64_t sample = s.positions == 1 ? row : row / s.positions;
      const float centre = mean[sample * s.groups + group];
      const float scale = inverse[sample * s.groups + group];
      const auto in = LoadPack<kWidth>(x + row * tiles.channels + place.channel);
      const auto gradients = LoadPack<kWidth>(dy + row * tiles.channels + place.channel);
#pragma unroll
      for (int c = 0; c < kWidth; ++c) {
        product[c] = fmaf(gradients.get(c), (in.get(c) - centre) * scale, product[c]);
        sum[c] += gradients.get(c);
      }
    }
  }
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpLanes;
#pragma unroll
  for (int c = 0; c < kWidth; ++c) {
    for (int step = tiles.tile_packs; step < kWarpLanes; step *= 2) {
      product[c] += __shfl_xor_sync(kAllLanes, product[c], step);
      sum[c] += __shfl_xor_sync(kAllLanes, sum[c], step);
    }
    if (lane >= tiles.tile_packs) continue;
    of_warps[0][thread / kWarpLanes][lane * kWidth + c] = product[c];
    of_warps[1][thread / kWarpLanes][lane * kWidth + c] = sum[c];
  }
  __syncthreads();
  const int tile_channels = tiles.tile_packs * kWidth;
  for (int i = thread; i < 2 * tile_channels; i += ChannelTiles::kThreads) {
    const int which = i / tile_channels;
    const int mine = i - which * tile_channels;
    const int64_t channel = place.tile * tile_channels + mine;
    if (channel >= tiles.channels) continue;
    float whole = 0;
    for (const auto& warp : of_warps[which]) whole += warp[mine];
    pieces[(2 * place.piece + which) * tiles.channels + channel] = whole;
  }
}

__global__ void __launch_bounds__(kFinishChannels* kFinishLanes)
    FinishChannelGradients(ChannelTiles tiles, const float* __restrict__ pieces,
                           float* __restrict__ dgamma, float* __restrict__ dbeta) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kFinishChannels + threadIdx.x;
  const bool inside = channel < tiles.channels;
  double product = 0, sum = 0;
  for (int64_t piece = threadIdx.y; inside && piece < tiles.pieces; piece += kFinishLanes) {
    const float* const at = pieces + 2 * piece * tiles.channels + channel;
    product += static_cast<double>(at[0]);
    sum += static_cast<double>(at[tiles.channels]);
  }
  const double products = SumFinishLanes(product);
  const double sums = SumFinishLanes(sum);
  if (!inside || threadIdx.y != 0) return;
  if (dgamma != nullptr) dgamma[channel] = static_cast<float>(products);
  if (dbeta != nullptr) dbeta[channel] = static_cast<float>(sums);
}

int GroupNormWidth(const GroupNormShape& s, int pack) { return s.channels % pack == 0 ? pack : 1; }

ChannelTiles CutForChannelGradients(const GroupNormShape& s, int width) {
  return CutIntoTiles(s.rows(), s.all_channels(), width, kChannelGradientBlocks, 1);
}

// Of kernels with a team a set: one of them, and its grid.
template <typename Kernel>
struct ByTeam {
  Kernel kernel;
  int64_t blocks;

  ByTeam(const GroupNormShape& s, int width, Kernel warps, Kernel whole) {
    const bool small = s.positions * s.channels / width <= kWarpPacks * kWarpLanes;
    kernel = small ? warps : whole;
    blocks = small ? CeilDiv(s.sets(), kTeamWarps) : s.sets();
  }
};

template <typename T, int kWidth>
cudaError_t StartGroupNorm(const GroupNormShape& s, const T* x, const float* gamma,
                           const float* beta, T* y, float* mean, float* inverse,
                           cudaStream_t stream) {
  const ByTeam by(s, kWidth, NormalizeSets<T, kWidth, TeamOf::kWarp>,
                  NormalizeSets<T, kWidth, TeamOf::kBlock>);
  return Enqueue(by.kernel, by.blocks, dim3(kWarpLanes, kTeamWarps), stream, s, x, gamma, beta, y,
                 mean, inverse);
}

template <typename T, int kWidth>
cudaError_t StartGroupNormGradient(const GroupNormShape& s, const GroupNormGradientOperands<T>& o,
                                   cudaStream_t stream) {
  const ByTeam by(s, kWidth, SetGradients<T, kWidth, TeamOf::kWarp>,
                  SetGradients<T, kWidth, TeamOf::kBlock>);
  cudaError_t error = Enqueue(by.kernel, by.blocks, dim3(kWarpLanes, kTeamWarps), stream, s, o.x,
                              o.dy, o.mean, o.inverse, o.gamma, o.dx);
  if (error != cudaSuccess || (o.dgamma == nullptr && o.dbeta == nullptr)) return error;
  const ChannelTiles tiles = CutForChannelGradients(s, kWidth);
  auto* const pieces = static_cast<float*>(o.workspace);
  error = Enqueue(PieceChannelGradients<T, kWidth>, tiles.blocks(), dim3(ChannelTiles::kThreads),
                  stream, s, tiles, o.x, o.dy, o.mean, o.inverse, pieces);
  if (error != cudaSuccess) return error;
  return Enqueue(FinishChannelGradients, CeilDiv(tiles.channels, kFinishChannels),
                 dim3(kFinishChannels, kFinishLanes), stream, tiles, pieces, o.dgamma, o.dbeta);
}

}  // namespace

template <typename T>
cudaError_t LaunchGroupNorm(const GroupNormShape& shape, const T* x, const float* gamma,
                            const float* beta, T* y, float* mean, float* inverse,
                            cudaStream_t stream) {
  const bool single = GroupNormWidth(shape, kPackWidth<T>) == 1;
  const auto forward = single ? StartGroupNorm<T, 1> : StartGroupNorm<T, kPackWidth<T>>;
  return forward(shape, x, gamma, beta, y, mean, inverse, stream);
}

size_t GroupNormWorkspace(const GroupNormShape& shape, size_t element_bytes) {
  const int width = GroupNormWidth(shape, 16 / static_cast<int>(element_bytes));
  const ChannelTiles tiles = CutForChannelGradients(shape, width);
  return sizeof(float) * static_cast<size_t>(2 * tiles.pieces * tiles.channels);
}

template <typename T>
cudaError_t LaunchGroupNormGradient(const GroupNormShape& shape,
                                    const GroupNormGradientOperands<T>& operands,
                                    cudaStream_t stream) {
  const bool single = GroupNormWidth(shape, kPackWidth<T>) == 1;
  return (single ? StartGroupNormGradient<T, 1>
                 : StartGroupNormGradient<T, kPackWidth<T>>)(shape, operands, stream);
}

#define RING_INSTANTIATE_GROUP_NORM(T)                                                  \
  template cudaError_t LaunchGroupNorm(const GroupNormShape&, const T*, const float*,   \
                                       const float*, T*, float*, float*, cudaStream_t); \
  template cudaError_t LaunchGroupNormGradient(const GroupNormShape&,                   \
                                               const GroupNormGradientOperands<T>&, cudaStream_t);
RING_INSTANTIATE_GROUP_NORM(float)
RING_INSTANTIATE_GROUP_NORM(__nv_bfloat16)
RING_INSTANTIATE_GROUP_NORM(__half)
#undef RING_INSTANTIATE_GROUP_NORM

}  // namespace ringmaster::cuda
