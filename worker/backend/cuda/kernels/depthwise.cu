// Windows of 3x3, 5x5 and 7x7 that move by 1 or 2 have kernels whose weights lie in shared memory
// and whose columns of x stay in registers from one output to the next. An input's gradient at
// stride 1 is the forward pass with its window turned round. All others take one element at a time.
#include "worker/backend/cuda/kernels/windows.h"

#include "worker/backend/cuda/kernels/depthwise_strips.h"

namespace ringmaster::cuda {
namespace {

constexpr int64_t kDepthwiseBlocks = 4096;  // wanted
constexpr int kTilePacks = 8;               // of a block, at most

template <typename T>
struct DepthwiseFinish {
  const float* bias;  // or nullptr
  bool relu;

  template <int kWidth>
  __device__ __forceinline__ Pack<T, kWidth> operator()(const float (&sums)[kWidth],
                                                        int64_t channel) const {
    Pack<T, kWidth> out;
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      const float value = bias == nullptr ? sums[c] : sums[c] + bias[channel + c];
      out.set(c, relu && value <= 0 ? 0.0F : value);
    }
    return out;
  }
};

enum class Window : uint8_t { kAsItIs, kTurned };

// The weights of the block's channels, by tap; ends with a barrier.
template <typename T, int kWidth, int kTaps>
__device__ void StageWeights(const ChannelTiles& tiles, int64_t tile, const T* __restrict__ w,
                             Window window, Pack<T, kWidth> (&weights)[kTaps][kTilePacks]) {
  const int64_t first = tile * tiles.tile_packs * kWidth;
  const int64_t there = tiles.channels - first;
  for (int i = static_cast<int>(threadIdx.x); i < tiles.tile_packs * kWidth * kTaps;
       i += kDepthwiseThreads) {
    const int channel = i / kTaps;
    if (channel >= there) break;
    const int tap = i - channel * kTaps;
    weights[window == Window::kTurned ? kTaps - 1 - tap : tap][channel / kWidth]
        .elements[channel % kWidth] = w[first * kTaps + i];
  }
  __syncthreads();
}

template <typename T, int kWidth, int kWindow, int kStride>
__global__ void __launch_bounds__(kDepthwiseThreads)
    SquareWindows(DepthwiseShape s, DepthwiseStrips strips, ChannelTiles tiles, Window window,
                  DepthwiseFinish<T> finish, const T* __restrict__ x, const T* __restrict__ w,
                  T* __restrict__ y) {
  constexpr int kSegment = (kStripColumns - 1) * kStride + kWindow;
  __shared__ Pack<T, kWidth> weights[kWindow * kWindow][kTilePacks];
  const TilePlace place(tiles, blockIdx.x);
  StageWeights(tiles, place.tile, w, window, weights);
  if (!place.inside) return;
  const int pack = static_cast<int>(threadIdx.x) % tiles.tile_packs;
  for (int64_t item = place.row; item < place.end; item += tiles.lanes()) {
    const StripPlace at(strips, item);
    const int first = at.strip * kStripColumns;
    float sums[kStripColumns][kWidth] = {};
    for (int h = 0; h < kWindow; ++h) {
      const int row = at.row * kStride - s.height.pad + h;
      if (!Inside(s.height, row)) continue;
      Pack<T, kWidth> segment[kSegment];
      LoadSegment(
          x + (at.sample * s.height.input + row) * s.width.input * s.channels + place.channel,
          s.channels, s.width.input, first * kStride - s.width.pad, segment);
#pragma unroll
      for (int i = 0; i < kWindow; ++i) {
        const Pack<T, kWidth> weight = weights[h * kWindow + i][pack];
#pragma unroll
        for (int k = 0; k < kStripColumns; ++k) {
#pragma unroll
          for (int c = 0; c < kWidth; ++c) {
            sums[k][c] = fmaf(segment[k * kStride + i].get(c), weight.get(c), sums[k][c]);
          }
        }
      }
    }
    T* const to = y + (at.sample * s.height.output + at.row) * s.width.output * s.channels;
#pragma unroll
    for (int k = 0; k < kStripColumns; ++k) {
      if (first + k >= s.width.output) break;
      StorePack<kWidth>(finish(sums[k], place.channel),
                        to + (first + k) * s.channels + place.channel);
    }
  }
}

// dx of a square window that moves by 2. Strips begin where a window may: column j of x is j + pad,
// so that which weights meet which column is known here.
template <typename T, int kWidth, int kWindow>
__global__ void __launch_bounds__(kDepthwiseThreads)
    HalvedGradient(DepthwiseShape s, DepthwiseStrips strips, ChannelTiles tiles,
                   const T* __restrict__ dy, const T* __restrict__ w, T* __restrict__ dx) {
  constexpr int kBefore = (kWindow - 1) / 2;  // columns of dy before that of the strip's first
  constexpr int kSegment = kBefore + kStripColumns / 2;
  __shared__ Pack<T, kWidth> weights[kWindow * kWindow][kTilePacks];
  const TilePlace place(tiles, blockIdx.x);
  StageWeights(tiles, place.tile, w, Window::kAsItIs, weights);
  if (!place.inside) return;
  const int pack = static_cast<int>(threadIdx.x) % tiles.tile_packs;
  for (int64_t item = place.row; item < place.end; item += tiles.lanes()) {
    const StripPlace at(strips, item);
    float sums[kStripColumns][kWidth] = {};
    for (int h = 0; h < kWindow; ++h) {
      const int twice = at.row + s.height.pad - h;
      if (twice < 0 || twice % 2 != 0 || twice / 2 >= s.height.output) continue;
      Pack<T, kWidth> segment[kSegment];
      LoadSegment(dy + (at.sample * s.height.output + twice / 2) * s.width.output * s.channels +
                      place.channel,
                  s.channels, s.width.output, at.strip * (kStripColumns / 2) - kBefore, segment);
#pragma unroll
      for (int i = 0; i < kWindow; ++i) {
        const Pack<T, kWidth> weight = weights[h * kWindow + i][pack];
#pragma unroll
        for (int k = i % 2; k < kStripColumns; k += 2) {
#pragma unroll
          for (int c = 0; c < kWidth; ++c) {
            sums[k][c] = fmaf(segment[(k - i) / 2 + kBefore].get(c), weight.get(c), sums[k][c]);
          }
        }
      }
    }
    T* const to = dx + (at.sample * s.height.input + at.row) * s.width.input * s.channels;
#pragma unroll
    for (int k = 0; k < kStripColumns; ++k) {
      const int column = at.strip * kStripColumns + k - s.width.pad;
      if (!Inside(s.width, column)) continue;
      StorePack<kWidth>(DepthwiseFinish<T>{}(sums[k], place.channel),
                        to + column * s.channels + place.channel);
    }
  }
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kDepthwiseThreads)
    AnyWindows(DepthwiseShape s, DepthwiseStrips strips, ChannelTiles tiles,
               DepthwiseFinish<T> finish, const T* __restrict__ x, const T* __restrict__ w,
               T* __restrict__ y) {
  const TilePlace place(tiles, blockIdx.x);
  if (!place.inside) return;
  const int64_t taps = static_cast<int64_t>(s.height.window) * s.width.window;
  const int64_t channel = place.channel / s.multiplier;
  for (int64_t item = place.row; item < place.end; item += tiles.lanes()) {
    const StripPlace at(strips, item);
    float sums[kWidth] = {};
    for (int h = 0; h < s.height.window; ++h) {
      const int row = at.row * s.height.stride - s.height.pad + h * s.height.dilation;
      if (!Inside(s.height, row)) continue;
      const T* const from = x + (at.sample * s.height.input + row) * s.width.input * s.channels;
      for (int i = 0; i < s.width.window; ++i) {
        const int column = at.strip * s.width.stride - s.width.pad + i * s.width.dilation;
        if (!Inside(s.width, column)) continue;
        const auto in = LoadPack<kWidth>(from + column * s.channels + channel);
        const T* const weight = w + place.channel * taps + h * s.width.window + i;
#pragma unroll
        for (int c = 0; c < kWidth; ++c) {
          sums[c] = fmaf(in.get(c), ToFloat(weight[c * taps]), sums[c]);
        }
      }
    }
    StorePack<kWidth>(
        finish(sums, place.channel),
        y + ((at.sample * s.height.output + at.row) * s.width.output + at.strip) * tiles.channels +
            place.channel);
  }
}

// The output whose window has its tap `k` at element `i`; -1: there is none.
__device__ inline int OutputUnder(const DepthwiseAxis& axis, int i, int k) {
  const int from = i + axis.pad - k * axis.dilation;
  if (from < 0 || from % axis.stride != 0) return -1;
  const int output = from / axis.stride;
  return output < axis.output ? output : -1;
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kDepthwiseThreads)
    AnyGradient(DepthwiseShape s, DepthwiseStrips strips, ChannelTiles tiles,
                const T* __restrict__ dy, const T* __restrict__ w, T* __restrict__ dx) {
  const TilePlace place(tiles, blockIdx.x);
  if (!place.inside) return;
  const int64_t taps = static_cast<int64_t>(s.height.window) * s.width.window;
  const int64_t filters = s.channels * s.multiplier;
  const int64_t first = place.channel * s.multiplier;
  for (int64_t item = place.row; item < place.end; item += tiles.lanes()) {
    const StripPlace at(strips, item);
    float sums[kWidth] = {};
    for (int h = 0; h < s.height.window; ++h) {
      const int row = OutputUnder(s.height, at.row, h);
      if (row < 0) continue;
      const T* const from = dy + (at.sample * s.height.output + row) * s.width.output * filters;
      for (int i = 0; i < s.width.window; ++i) {
        const int column = OutputUnder(s.width, at.strip, i);
        if (column < 0) continue;
        for (int64_t j = 0; j < s.multiplier; ++j) {
          const auto in = LoadPack<kWidth>(from + column * filters + first + j);
          const T* const weight = w + (first + j) * taps + h * s.width.window + i;
#pragma unroll
          for (int c = 0; c < kWidth; ++c) {
            sums[c] = fmaf(in.get(c), ToFloat(weight[c * taps]), sums[c]);
          }
        }
      }
    }
    StorePack<kWidth>(
        DepthwiseFinish<T>{}(sums, place.channel),
        dx + ((at.sample * s.height.input + at.row) * s.width.input + at.strip) * s.channels +
            place.channel);
  }
}

ChannelTiles CutStrips(const DepthwiseShape& s, const DepthwiseStrips& strips, int64_t channels,
                       int width) {
  return CutIntoTiles(strips.count(s.samples), channels, width, kDepthwiseBlocks, 1);
}

template <typename T, int kWindow, int kStride>
cudaError_t StartSquare(const DepthwiseShape& s, Window window, DepthwiseFinish<T> finish,
                        const T* x, const T* w, T* y, cudaStream_t stream) {
  constexpr int kWidth = kPackWidth<T>;
  const DepthwiseStrips strips = {s.height.output,
                                  static_cast<int>(CeilDiv(s.width.output, kStripColumns))};
  const ChannelTiles tiles = CutStrips(s, strips, s.channels, kWidth);
  return Enqueue(SquareWindows<T, kWidth, kWindow, kStride>, tiles.blocks(),
                 dim3(kDepthwiseThreads), stream, s, strips, tiles, window, finish, x, w, y);
}

template <typename T, int kWidth>
cudaError_t StartAny(const DepthwiseShape& s, DepthwiseFinish<T> finish, const T* x, const T* w,
                     T* y, cudaStream_t stream) {
  const DepthwiseStrips strips = {s.height.output, s.width.output};
  const ChannelTiles tiles = CutStrips(s, strips, s.filters(), kWidth);
  return Enqueue(AnyWindows<T, kWidth>, tiles.blocks(), dim3(kDepthwiseThreads), stream, s, strips,
                 tiles, finish, x, w, y);
}

template <typename T, int kWindow>
cudaError_t StartHalved(const DepthwiseShape& s, const T* dy, const T* w, T* dx,
                        cudaStream_t stream) {
  constexpr int kWidth = kPackWidth<T>;
  const DepthwiseStrips strips = {
      s.height.input, static_cast<int>(CeilDiv(s.width.input + s.width.pad, kStripColumns))};
  const ChannelTiles tiles = CutStrips(s, strips, s.channels, kWidth);
  return Enqueue(HalvedGradient<T, kWidth, kWindow>, tiles.blocks(), dim3(kDepthwiseThreads),
                 stream, s, strips, tiles, dy, w, dx);
}

template <typename T, int kWidth>
cudaError_t StartAnyGradient(const DepthwiseShape& s, const T* dy, const T* w, T* dx,
                             cudaStream_t stream) {
  const DepthwiseStrips strips = {s.height.input, s.width.input};
  const ChannelTiles tiles = CutStrips(s, strips, s.channels, kWidth);
  return Enqueue(AnyGradient<T, kWidth>, tiles.blocks(), dim3(kDepthwiseThreads), stream, s, strips,
                 tiles, dy, w, dx);
}

// The axis that takes outputs to inputs, its window turned round; of stride 1.
DepthwiseAxis Turned(const DepthwiseAxis& axis) {
  return {axis.output, axis.window, 1, axis.window - 1 - axis.pad, 1, axis.input};
}

}  // namespace

template <typename T>
cudaError_t LaunchDepthwise(const DepthwiseShape& s, const T* x, const T* w, const float* bias,
                            bool relu, T* y, cudaStream_t stream) {
  const DepthwiseFinish<T> finish = {bias, relu};
  if (!InPacks<T>(s)) return StartAny<T, 1>(s, finish, x, w, y, stream);
  const Window window = Window::kAsItIs;
  if (IsSquare(s, 3, 1)) return StartSquare<T, 3, 1>(s, window, finish, x, w, y, stream);
  if (IsSquare(s, 3, 2)) return StartSquare<T, 3, 2>(s, window, finish, x, w, y, stream);
  if (IsSquare(s, 5, 1)) return StartSquare<T, 5, 1>(s, window, finish, x, w, y, stream);
  if (IsSquare(s, 5, 2)) return StartSquare<T, 5, 2>(s, window, finish, x, w, y, stream);
  if (IsSquare(s, 7, 1)) return StartSquare<T, 7, 1>(s, window, finish, x, w, y, stream);
  return StartAny<T, kPackWidth<T>>(s, finish, x, w, y, stream);
}

template <typename T>
cudaError_t LaunchDepthwiseInputGradient(const DepthwiseShape& s, const T* dy, const T* w, T* dx,
                                         cudaStream_t stream) {
  if (!InPacks<T>(s)) return StartAnyGradient<T, 1>(s, dy, w, dx, stream);
  if (IsSquare(s, 3, 2)) return StartHalved<T, 3>(s, dy, w, dx, stream);
  if (IsSquare(s, 5, 2)) return StartHalved<T, 5>(s, dy, w, dx, stream);
  DepthwiseShape back = s;
  back.height = Turned(s.height);
  back.width = Turned(s.width);
  const auto turned = [&](auto start) {
    return start(back, Window::kTurned, DepthwiseFinish<T>{}, dy, w, dx, stream);
  };
  if (IsSquare(s, 3, 1)) return turned(StartSquare<T, 3, 1>);
  if (IsSquare(s, 5, 1)) return turned(StartSquare<T, 5, 1>);
  if (IsSquare(s, 7, 1)) return turned(StartSquare<T, 7, 1>);
  return StartAnyGradient<T, kPackWidth<T>>(s, dy, w, dx, stream);
}

#define RING_INSTANTIATE_DEPTHWISE(T)                                                              \
  template cudaError_t LaunchDepthwise(const DepthwiseShape&, const T*, const T*, const float*,    \
                                       bool, T*, cudaStream_t);                                    \
  template cudaError_t LaunchDepthwiseInputGradient(const DepthwiseShape&, const T*, const T*, T*, \
                                                    cudaStream_t);
RING_INSTANTIATE_DEPTHWISE(float)
RING_INSTANTIATE_DEPTHWISE(__nv_bfloat16)
RING_INSTANTIATE_DEPTHWISE(__half)
#undef RING_INSTANTIATE_DEPTHWISE

}  // namespace ringmaster::cuda
