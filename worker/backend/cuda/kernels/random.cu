#include "worker/backend/cuda/kernels/random.h"

#include "common/numeric/arithmetic.h"
#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/maps.h"
#include "worker/backend/cuda/kernels/packs.h"

namespace ringmaster::cuda {
namespace {

constexpr int kKeyThreads = 64;
constexpr int kDropThreads = 256;
constexpr int kGroup = 8;  // elements of one thread: two blocks of the stream

__global__ void __launch_bounds__(kKeyThreads)
    MakeStreamKeys(StreamName name, uint64_t purpose, const uint64_t* __restrict__ seed_and_step,
                   const uint64_t* __restrict__ samples, StreamKey* __restrict__ keys,
                   int64_t rows) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kKeyThreads + threadIdx.x;
  if (row >= rows) return;
  keys[row] = MakeStreamKey(name, seed_and_step[0], purpose, seed_and_step[1], samples[row]);
}

// A row is `blocks` blocks of threads, each thread a group; kVector: groups are whole and aligned.
template <typename T, bool kVector>
__global__ void __launch_bounds__(kDropThreads)
    DropGroups(DropoutMask mask, const StreamKey* __restrict__ keys, const T* x, T* y,
               int64_t row_elements, unsigned blocks) {
  const int64_t row = blockIdx.x / blocks;
  const int64_t group = static_cast<int64_t>(blockIdx.x % blocks) * blockDim.x + threadIdx.x;
  const int64_t first = group * kGroup;
  if (first >= row_elements) return;
  const T* from = x + row * row_elements;
  const Pack<T, kGroup> in =
      kVector ? LoadPack<kGroup>(from + first) : LoadEach<kGroup>(from, first, row_elements);
  const StreamKey key = keys[row];
  Pack<T, kGroup> out;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t block = mask.per_sample ? 0 : 2 * group + half;
    const StreamWords bits = StreamBlock(key, static_cast<uint64_t>(block));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t own = mask.per_sample ? bits.x[0] : bits.x[i];
      out.set(4 * half + i, Drop(mask, own, in.get(4 * half + i)));
    }
  }
  T* to = y + row * row_elements;
  if (kVector) {
    StorePack<kGroup>(out, to + first);
  } else {
    StoreEach<kGroup>(out, to, first, row_elements);
  }
}

}  // namespace

cudaError_t LaunchStreamKeys(const StreamName& name, uint64_t purpose,
                             const uint64_t* seed_and_step, const uint64_t* samples,
                             StreamKey* keys, int64_t rows, cudaStream_t stream) {
  return Enqueue(MakeStreamKeys, CeilDiv(rows, kKeyThreads), dim3(kKeyThreads), stream, name,
                 purpose, seed_and_step, samples, keys, rows);
}

template <typename T>
cudaError_t LaunchDropout(const DropoutMask& mask, const StreamKey* keys, const T* x, T* y,
                          int64_t rows, int64_t row_elements, cudaStream_t stream) {
  const int64_t groups = CeilDiv(row_elements, kGroup);
  // Whole warps, few of them for a short row.
  const int64_t threads = groups < kDropThreads ? CeilDiv(groups, 32) * 32 : kDropThreads;
  const int64_t blocks = CeilDiv(groups, threads);
  const auto kernel = row_elements % kGroup == 0 ? DropGroups<T, true> : DropGroups<T, false>;
  return Enqueue(kernel, rows * blocks, dim3(static_cast<unsigned>(threads)), stream, mask, keys, x,
                 y, row_elements, static_cast<unsigned>(blocks));
}

template cudaError_t LaunchDropout(const DropoutMask&, const StreamKey*, const float*, float*,
                                   int64_t, int64_t, cudaStream_t);
template cudaError_t LaunchDropout(const DropoutMask&, const StreamKey*, const __nv_bfloat16*,
                                   __nv_bfloat16*, int64_t, int64_t, cudaStream_t);
template cudaError_t LaunchDropout(const DropoutMask&, const StreamKey*, const __half*, __half*,
                                   int64_t, int64_t, cudaStream_t);

// A block makes an image. An element is found in the stored pixels by going through crops and flips
// from the last to the first, and then goes through the operations that change values: so no image
// has to be stored between two operations, and as many as there are need no memory. Once nothing
// moves elements any more, a pass that reads all of them keeps them in the model's image, where the
// next pass finds them; not in one of 16 bits, which has room for the last values alone. Sums are
// those of common/numeric/arithmetic.h: eight threads take a block of 256.

namespace {

constexpr int kDrawThreads = 64;
constexpr int kFewThreads = 128;  // of an image of at most kFewElements
constexpr int kManyThreads = 512;
constexpr uint32_t kFewElements = 1 << 14;
constexpr unsigned kSumBlock = kLaneSumBlock;
constexpr unsigned kSumLanes = 8;
constexpr unsigned kNearSums = 640;  // in the multiprocessor's own memory: all of 224 x 224 x 3
constexpr int kNone = -1;

// PhiloxStream::Uniform and Below, of an element's 32 bits.
__device__ float UniformOf(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24F; }
__device__ uint32_t BelowOf(uint32_t bits, uint32_t bound) {
  return static_cast<uint32_t>((static_cast<uint64_t>(bits) * bound) >> 32);
}

__device__ AugmentState StateOf(AugmentKind kind, const AugmentDraw& draw,
                                const StreamWords& bits) {
  AugmentState state;
  if (kind == AugmentKind::kCrop) {
    const uint32_t places = 2 * draw.padding + 1;
    state.down = static_cast<int32_t>(graph::CropOffset(BelowOf(bits.x[0], places), draw.padding));
    state.right = static_cast<int32_t>(graph::CropOffset(BelowOf(bits.x[1], places), draw.padding));
  } else if (kind == AugmentKind::kFlip) {
    state.right = static_cast<int32_t>(BelowOf(bits.x[0], 2));
  } else if (kind == AugmentKind::kBrightness) {
    state.number = graph::BrightnessDelta(UniformOf(bits.x[0]), draw.high);
  } else if (kind == AugmentKind::kContrast) {
    state.number = graph::ContrastFactor(UniformOf(bits.x[0]), draw.low, draw.high);
  }
  return state;
}

// A thread draws for one operation on one image.
__global__ void __launch_bounds__(kDrawThreads)
    DrawStates(AugmentPlan plan, const uint64_t* __restrict__ seed_and_step,
               const uint64_t* __restrict__ samples, int64_t rows, AugmentState* states) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kDrawThreads + threadIdx.x;
  if (i >= rows * plan.count) return;
  const int64_t row = i / plan.count;
  const auto k = static_cast<int>(i - row * plan.count);
  const AugmentDraw& draw = plan.draw[k];
  if (draw.purpose == 0) return;
  const StreamKey key =
      MakeStreamKey(draw.name, seed_and_step[0], draw.purpose, seed_and_step[1], samples[row]);
  states[i] = StateOf(plan.kinds[k], draw, StreamBlock(key, 0));
}

// One image in the making, stored as T. The same on all threads of its block.
template <typename T>
struct Image {
  const AugmentPlan& plan;
  const uint8_t* pixels;
  AugmentState* states;  // by operation
  double* means;         // by operation and channel
  double* sums;
  T* elements;
  // `elements` are what they are before this operation; kNone: not written yet.
  int held = kNone;

  // A value of the stored image, resized; of its grey channel where it has no other.
  __device__ float Resized(int32_t y, int32_t x, uint32_t c) const {
    const uint32_t channels = plan.stored_channels;
    if (channels == 1) c = 0;
    const auto at = [&](uint32_t from_y, uint32_t from_x) {
      return static_cast<float>(pixels[(from_y * plan.stored_width + from_x) * channels + c]);
    };
    if (plan.down == nullptr) return at(static_cast<uint32_t>(y), static_cast<uint32_t>(x));
    const graph::Tap down = plan.down[y];
    const graph::Tap across = plan.across[x];
    return graph::Interpolated(
        graph::Interpolated(at(down.low, across.low), at(down.low, across.high), across.weight),
        graph::Interpolated(at(down.high, across.low), at(down.high, across.high), across.weight),
        down.weight);
  }

  // A value of channel c after operations [first, end), which leave it in its place.
  __device__ float Changed(float value, uint32_t c, int first, int end) const {
    for (int k = first; k < end; ++k) {
      const AugmentState& state = states[k];
      switch (plan.kinds[k]) {
        case AugmentKind::kCrop:
        case AugmentKind::kFlip:
          break;
        case AugmentKind::kBrightness:
          value = graph::Brightened(value, state.number);
          break;
        case AugmentKind::kContrast:
          value = graph::Contrasted(value, state.number, means[k * plan.channels + c]);
          break;
        case AugmentKind::kStandardize:
          value = graph::Standardized(value, state.number, state.divisor);
          break;
        case AugmentKind::kUnitRange:
          value = graph::OfUnitRange(value);
          break;
      }
    }
    return value;
  }

  // Element i of the image as it is before operation `end`.
  __device__ float Before(int end, uint32_t i) const {
    const uint32_t pixel = plan.by_channels.Quotient(i);
    const uint32_t c = i - pixel * plan.channels;
    if (held != kNone) return Changed(ToFloat(elements[i]), c, held, end);
    const uint32_t row = plan.by_width.Quotient(pixel);
    const auto height = static_cast<int32_t>(plan.height);
    const auto width = static_cast<int32_t>(plan.width);
    auto y = static_cast<int32_t>(row);
    auto x = static_cast<int32_t>(pixel - row * plan.width);
    int first = end;
    bool inside = true;
    while (first > 0 && inside) {
      --first;
      const AugmentState& state = states[first];
      if (plan.kinds[first] == AugmentKind::kCrop) {
        y += state.down;
        x += state.right;
        inside = y >= 0 && y < height && x >= 0 && x < width;
      } else if (plan.kinds[first] == AugmentKind::kFlip && state.right == 1) {
        x = width - 1 - x;
      }
    }
    // What a crop took from outside is zero, and new to the operations before it.
    return Changed(inside ? Resized(y, x, c) : 0.0F, c, first, end);
  }

  // sums[s * blocks] = the sum of value(i) over i = s, s + series, ...: `length` of them, in
  // `blocks` blocks.
  template <typename Value>
  __device__ void Sum(uint32_t series, uint32_t length, const Value& value) const {
    const uint32_t blocks = (length + kSumBlock - 1) / kSumBlock;
    const uint32_t lane = threadIdx.x % kSumLanes;
    // All threads take part in shuffles.
    for (uint32_t first = 0; first < series * blocks; first += blockDim.x / kSumLanes) {
      const uint32_t mine = first + threadIdx.x / kSumLanes;
      double sum = 0;
      if (mine < series * blocks) {
        const uint32_t s = mine / blocks;
        const uint32_t begin = (mine - s * blocks) * kSumBlock;
        const uint32_t end = begin + kSumBlock < length ? begin + kSumBlock : length;
        for (uint32_t i = begin + lane; i < end; i += kSumLanes) sum += value(i * series + s);
      }
      for (int lanes = 1; lanes < static_cast<int>(kSumLanes); lanes *= 2) {
        sum += __shfl_xor_sync(kAllLanes, sum, lanes);
      }
      if (lane == 0 && mine < series * blocks) sums[mine] = sum;
    }
    __syncthreads();
    // Neighbours, then neighbours of those; one without a neighbour waits for the next round.
    for (uint32_t step = 1; step < blocks; step *= 2) {
      const uint32_t pairs = (blocks - step + 2 * step - 1) / (2 * step);
      for (uint32_t i = threadIdx.x; i < series * pairs; i += blockDim.x) {
        const uint32_t s = i / pairs;
        double* const left = sums + s * blocks + (i - s * pairs) * 2 * step;
        *left += left[step];
      }
      __syncthreads();
    }
  }

  // The same over the image's values before operation k, which are kept where they can be.
  __device__ void SumValues(int k, uint32_t series) {
    const bool keep = sizeof(T) == sizeof(float) && k >= plan.places_end;
    Sum(series, plan.elements() / series, [&](uint32_t i) {
      const float value = Before(k, i);
      if (keep) elements[i] = FromFloat<T>(value);
      return static_cast<double>(value);
    });
    if (keep) held = k;
  }

  __device__ void TakeMeans(int k) {
    const uint32_t pixels_here = plan.pixels();
    SumValues(k, plan.channels);
    const uint32_t blocks = (pixels_here + kSumBlock - 1) / kSumBlock;
    for (uint32_t c = threadIdx.x; c < plan.channels; c += blockDim.x) {
      means[k * plan.channels + c] = sums[c * blocks] / static_cast<double>(pixels_here);
    }
    __syncthreads();
  }

  __device__ void TakeDeviation(int k) {
    const auto n = static_cast<double>(plan.elements());
    SumValues(k, 1);
    if (threadIdx.x == 0) states[k].number = sums[0] / n;
    __syncthreads();
    const double mean = states[k].number;
    Sum(1, plan.elements(),
        [&](uint32_t i) { return graph::SquaredDeviation(Before(k, i), mean); });
    if (threadIdx.x == 0) states[k].divisor = graph::StandardDivisor(sums[0] / n, n);
    __syncthreads();
  }
};

template <typename T>
__global__ void __launch_bounds__(kManyThreads, 2)
    MakeImages(AugmentPlan plan, uint32_t far_sums, const uint8_t* __restrict__ pixels,
               AugmentScratch scratch, T* images) {
  __shared__ double near_sums[kNearSums];
  const int64_t row = blockIdx.x;
  Image<T> image = {plan,
                    pixels + row * plan.stored_elements(),
                    scratch.states + row * plan.count,
                    scratch.means + row * plan.count * plan.channels,
                    far_sums == 0 ? near_sums : scratch.sums + row * far_sums,
                    images + row * plan.elements()};
  for (int k = 0; k < plan.count; ++k) {
    if (plan.kinds[k] == AugmentKind::kContrast) image.TakeMeans(k);
    if (plan.kinds[k] == AugmentKind::kStandardize) image.TakeDeviation(k);
  }
  for (uint32_t i = threadIdx.x; i < plan.elements(); i += blockDim.x) {
    image.elements[i] = FromFloat<T>(image.Before(plan.count, i));
  }
}

bool Has(const AugmentPlan& plan, AugmentKind kind) {
  for (int k = 0; k < plan.count; ++k) {
    if (plan.kinds[k] == kind) return true;
  }
  return false;
}

uint32_t SumBlocks(uint32_t count) { return (count + kSumBlock - 1) / kSumBlock; }

}  // namespace

size_t AugmentStates(const AugmentPlan& plan) { return static_cast<size_t>(plan.count); }

size_t AugmentMeans(const AugmentPlan& plan) {
  if (!Has(plan, AugmentKind::kContrast)) return 0;
  return static_cast<size_t>(plan.count) * plan.channels;
}

size_t AugmentSums(const AugmentPlan& plan) {
  uint32_t sums = 0;
  if (Has(plan, AugmentKind::kStandardize)) sums = SumBlocks(plan.elements());
  if (Has(plan, AugmentKind::kContrast)) {
    // Each channel begins a block, so these are as many at least.
    sums = plan.channels * SumBlocks(plan.pixels());
  }
  return sums <= kNearSums ? 0 : sums;
}

template <typename T>
cudaError_t LaunchAugment(const AugmentPlan& plan, const uint8_t* pixels, int64_t rows,
                          const uint64_t* seed_and_step, const uint64_t* samples,
                          const AugmentScratch& scratch, T* images, cudaStream_t stream) {
  if (plan.draws) {
    const cudaError_t error =
        Enqueue(DrawStates, CeilDiv(rows * plan.count, kDrawThreads), dim3(kDrawThreads), stream,
                plan, seed_and_step, samples, rows, scratch.states);
    if (error != cudaSuccess) return error;
  }
  const int threads = plan.elements() <= kFewElements ? kFewThreads : kManyThreads;
  return Enqueue(MakeImages<T>, rows, dim3(static_cast<unsigned>(threads)), stream, plan,
                 static_cast<uint32_t>(AugmentSums(plan)), pixels, scratch, images);
}

template cudaError_t LaunchAugment(const AugmentPlan&, const uint8_t*, int64_t, const uint64_t*,
                                   const uint64_t*, const AugmentScratch&, float*, cudaStream_t);
template cudaError_t LaunchAugment(const AugmentPlan&, const uint8_t*, int64_t, const uint64_t*,
                                   const uint64_t*, const AugmentScratch&, __nv_bfloat16*,
                                   cudaStream_t);
template cudaError_t LaunchAugment(const AugmentPlan&, const uint8_t*, int64_t, const uint64_t*,
                                   const uint64_t*, const AugmentScratch&, __half*, cudaStream_t);

}  // namespace ringmaster::cuda
