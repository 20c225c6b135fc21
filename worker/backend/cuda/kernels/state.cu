#include "worker/backend/cuda/kernels/state.h"

#include <bit>
#include <type_traits>
#include <utility>
#include <variant>

#include "common/exact/arithmetic.h"
#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/packs.h"

namespace ringmaster::cuda {

// A block of threads takes a block of integers, a thread an element; a warp where all that is left
// of a block is one number.

namespace {

constexpr int kBlockThreads = exact::kBlockElements;
constexpr int kExactWarps = 8;  // of one block of threads
constexpr int kElementsOfLane = exact::kBlockElements / kWarpLanes;
constexpr int kScanThreads = 1024;
constexpr int kScanItems = 4;  // of one thread

// exact::QuantizeAdd's arguments as a block of threads needs them.
struct BlockQuantization {
  TensorQuantization tensor;
  int ceil_log2_shards;

  __device__ exact::Quantization of(int64_t block) const {
    const int log2_scale = static_cast<int>(exact::FloatBits(*tensor.gradient_scale) >> 23) - 127;
    return exact::MakeQuantization(log2_scale, tensor.exponents[block] - tensor.precision_bits,
                                   ceil_log2_shards);
  }
};

__device__ unsigned long long RefusedCode(int64_t element, uint32_t magnitude) {
  const auto kind =
      magnitude >= exact::kInfinityBits ? exact::FlagKind::kNotFinite : exact::FlagKind::kTooLarge;
  return static_cast<unsigned long long>(element) * 4 + static_cast<unsigned>(kind);
}

__global__ void __launch_bounds__(kBlockThreads)
    QuantizeAdd(const float* __restrict__ gradient, int64_t elements,
                BlockQuantization quantization, unsigned long long* sums,
                unsigned long long* flag) {
  __shared__ unsigned long long first_refused;
  const exact::Quantization block = quantization.of(blockIdx.x);
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  const float value = i < elements ? gradient[i] : 0.0F;
  const uint32_t magnitude = exact::FloatBits(value) & exact::kMagnitudeMask;
  const bool refused = magnitude >= block.limit;
  if (i < elements && !refused) {
    atomicAdd(sums + i, static_cast<unsigned long long>(exact::RoundScaled(value, block.shift)));
  }
  if (threadIdx.x == 0) first_refused = kNothingRefused;
  if (__syncthreads_or(refused ? 1 : 0) == 0) return;
  if (refused) atomicMin(&first_refused, RefusedCode(i, magnitude));
  __syncthreads();
  if (threadIdx.x == 0) atomicMin(flag, first_refused);
}

// A number whose OR over a block has as many bits as the block's widest element: v or ~v, whichever
// is not negative, above a bit that says that v is not 0.
__device__ uint64_t Footprint(int64_t v) {
  return static_cast<uint64_t>(v ^ (v >> 63)) << 1 | (v != 0 ? 1U : 0U);
}

__global__ void __launch_bounds__(kWarpLanes* kExactWarps)
    MeasureWidths(const int64_t* __restrict__ integers, const uint32_t* __restrict__ counts,
                  int64_t blocks, uint8_t* __restrict__ widths) {
  const int64_t b = static_cast<int64_t>(blockIdx.x) * kExactWarps + threadIdx.y;
  if (b >= blocks) return;  // a whole warp
  const unsigned lane = threadIdx.x;
  const unsigned count = counts[b];
  const int64_t* const block = integers + b * exact::kBlockElements;
  uint64_t any = 0;
#pragma unroll
  for (int k = 0; k < kElementsOfLane; ++k) {
    const unsigned i = k * kWarpLanes + lane;
    if (i < count) any |= Footprint(block[i]);
  }
#pragma unroll
  for (int half = kWarpLanes / 2; half > 0; half /= 2) {
    any |= __shfl_xor_sync(kAllLanes, any, half);
  }
  const int bits = 64 - __clzll(static_cast<long long>(any));
  if (lane == 0) widths[b] = static_cast<uint8_t>((bits + 1) & ~1);
}

__device__ uint64_t PackedBytesOf(int width, uint32_t count) {
  const size_t rows = exact::RowsOf(count);
  return exact::PlaneBytes(exact::LowWidth(width), rows) +
         exact::PlaneBytes(exact::HighWidth(width), rows);
}

// What lies before a lane, and all lanes' sum.
struct Scan {
  uint64_t before;
  uint64_t total;
};

__device__ Scan ScanWarp(uint64_t mine, unsigned lane) {
  Scan scan = {0, mine};
#pragma unroll
  for (unsigned half = 1; half < kWarpLanes; half *= 2) {
    const uint64_t other = __shfl_xor_sync(kAllLanes, scan.total, static_cast<int>(half));
    if ((lane & half) != 0) scan.before += other;
    scan.total += other;
  }
  return scan;
}

// One block of threads goes over all blocks, kScanThreads * kScanItems at a time.
__global__ void __launch_bounds__(kScanThreads)
    SumOffsets(const uint8_t* __restrict__ widths, const uint32_t* __restrict__ counts,
               int64_t blocks, uint64_t* __restrict__ offsets) {
  static_assert(kScanThreads == kWarpLanes * kWarpLanes);
  __shared__ uint64_t warp_totals[kWarpLanes];
  __shared__ uint64_t before_warp[kWarpLanes];
  const unsigned lane = threadIdx.x % kWarpLanes;
  const unsigned warp = threadIdx.x / kWarpLanes;
  uint64_t base = 0;
  for (int64_t first = 0; first < blocks; first += kScanThreads * kScanItems) {
    const int64_t mine = first + static_cast<int64_t>(threadIdx.x) * kScanItems;
    uint64_t bytes[kScanItems];
    uint64_t sum = 0;
#pragma unroll
    for (int k = 0; k < kScanItems; ++k) {
      bytes[k] = mine + k < blocks ? PackedBytesOf(widths[mine + k], counts[mine + k]) : 0;
      sum += bytes[k];
    }
    const Scan in_warp = ScanWarp(sum, lane);
    if (lane == 0) warp_totals[warp] = in_warp.total;
    __syncthreads();
    const Scan warps = ScanWarp(warp_totals[lane], lane);
    if (warp == 0) before_warp[lane] = warps.before;
    __syncthreads();
    uint64_t offset = base + before_warp[warp] + in_warp.before;
#pragma unroll
    for (int k = 0; k < kScanItems; ++k) {
      if (mine + k < blocks) offsets[mine + k] = offset;
      offset += bytes[k];
    }
    base += warps.total;
  }
  if (threadIdx.x == 0) offsets[blocks] = base;
}

__device__ uint32_t LowBits(int width) { return 0xffffffffU >> (32 - width); }

// Word `word` of a lane's stream of `rows` elements, of which `drop` bits below are another's.
__device__ uint32_t StreamWord(const int64_t* block, unsigned lane, int word, int rows, int width,
                               int drop) {
  const int begin = 32 * word;
  uint32_t bits = 0;
  for (int row = begin / width; row < rows && row * width < begin + 32; ++row) {
    const int64_t element = block[row * static_cast<int>(exact::kLanes) + lane];
    const uint32_t value = static_cast<uint32_t>(element >> drop) & LowBits(width);
    const int at = row * width - begin;
    bits |= at >= 0 ? value << at : value >> -at;
  }
  return bits;
}

// A thread makes a word of each plane: 16 lanes have at most 16 words.
__global__ void __launch_bounds__(kBlockThreads)
    PackBlocks(PackedBlocks packed, const int64_t* __restrict__ integers,
               uint8_t* __restrict__ bytes) {
  __shared__ int64_t block[exact::kBlockElements];
  const int64_t b = blockIdx.x;
  const int width = packed.widths[b];
  if (width == 0) return;  // the whole block
  const uint32_t count = packed.counts[b];
  const unsigned mine = threadIdx.x;
  block[mine] = mine < count ? integers[b * exact::kBlockElements + mine] : 0;
  __syncthreads();
  const auto rows = static_cast<int>(exact::RowsOf(count));
  const unsigned lane = mine % exact::kLanes;
  const int word = static_cast<int>(mine / exact::kLanes);
  const int low = exact::LowWidth(width);
  const int high = exact::HighWidth(width);
  const auto low_words = static_cast<int>(exact::PlaneWords(low, rows));
  auto* const words = reinterpret_cast<uint32_t*>(bytes + packed.offsets[b]);
  if (word < low_words) words[mine] = StreamWord(block, lane, word, rows, low, 0);
  if (high > 0 && word < static_cast<int>(exact::PlaneWords(high, rows))) {
    words[low_words * static_cast<int>(exact::kLanes) + mine] =
        StreamWord(block, lane, word, rows, high, 32);
  }
}

// Element `row` of the stream of the lane whose first word is *stream, its upper bits 0.
__device__ uint32_t StreamElement(const uint32_t* stream, int row, int width) {
  const int begin = row * width;
  const uint32_t* const word = stream + begin / 32 * static_cast<int>(exact::kLanes);
  const int at = begin % 32;
  uint64_t bits = *word;
  if (at + width > 32) bits |= uint64_t{word[exact::kLanes]} << 32;
  return static_cast<uint32_t>(bits >> at) & LowBits(width);
}

__device__ int64_t SignExtend(uint32_t value, int width) {
  return static_cast<int32_t>(value << (32 - width)) >> (32 - width);
}

__global__ void __launch_bounds__(kBlockThreads)
    UnpackBlocks(PackedBlocks packed, const uint8_t* __restrict__ bytes,
                 int64_t* __restrict__ integers) {
  const int64_t b = blockIdx.x;
  const unsigned mine = threadIdx.x;
  const uint32_t count = packed.counts[b];
  if (mine >= count) return;
  const int width = packed.widths[b];
  uint64_t value = 0;
  if (width > 0) {
    const unsigned lane = mine % exact::kLanes;
    const int row = static_cast<int>(mine / exact::kLanes);
    const auto* const words = reinterpret_cast<const uint32_t*>(bytes + packed.offsets[b]);
    if (width <= 32) {
      value = static_cast<uint64_t>(SignExtend(StreamElement(words + lane, row, width), width));
    } else {
      const size_t upper = exact::PlaneWords(32, exact::RowsOf(count)) * exact::kLanes + lane;
      const uint32_t high = StreamElement(words + upper, row, width - 32);
      value = static_cast<uint64_t>(SignExtend(high, width - 32)) << 32 |
              StreamElement(words + lane, row, 32);
    }
  }
  integers[b * exact::kBlockElements + mine] = static_cast<int64_t>(value);
}

// CUDA's atomics know 64-bit integers by this name alone.
unsigned long long* Atomic(void* integers) { return static_cast<unsigned long long*>(integers); }

}  // namespace

cudaError_t LaunchQuantizeAdd(const float* gradient, int64_t elements,
                              const TensorQuantization& quantization, int64_t* sums, uint64_t* flag,
                              cudaStream_t stream) {
  const BlockQuantization block = {quantization,
                                   static_cast<int>(std::bit_width(quantization.shards - 1))};
  return Enqueue(QuantizeAdd, CeilDiv(elements, kBlockThreads), dim3(kBlockThreads), stream,
                 gradient, elements, block, Atomic(sums), Atomic(flag));
}

cudaError_t LaunchWidths(const int64_t* integers, const uint32_t* counts, int64_t blocks,
                         uint8_t* widths, cudaStream_t stream) {
  return Enqueue(MeasureWidths, CeilDiv(blocks, kExactWarps), dim3(kWarpLanes, kExactWarps), stream,
                 integers, counts, blocks, widths);
}

cudaError_t LaunchOffsets(const uint8_t* widths, const uint32_t* counts, int64_t blocks,
                          uint64_t* offsets, cudaStream_t stream) {
  return Enqueue(SumOffsets, 1, dim3(kScanThreads), stream, widths, counts, blocks, offsets);
}

cudaError_t LaunchPack(const PackedBlocks& packed, const int64_t* integers, uint8_t* bytes,
                       cudaStream_t stream) {
  return Enqueue(PackBlocks, packed.blocks, dim3(kBlockThreads), stream, packed, integers, bytes);
}

cudaError_t LaunchUnpack(const PackedBlocks& packed, const uint8_t* bytes, int64_t* integers,
                         cudaStream_t stream) {
  return Enqueue(UnpackBlocks, packed.blocks, dim3(kBlockThreads), stream, packed, bytes, integers);
}

namespace {

using exact::kBlockElements;

// A thread has four elements: sixteen bytes of a parameter, two such loads of its integers.
constexpr int kUpdateWidth = 4;
constexpr int kUpdateThreads = static_cast<int>(kBlockElements) / kUpdateWidth;
constexpr int kUpdateWarps = kUpdateThreads / kWarpLanes;

// As many packs as a rule has slots, and one more where C++ wants one.
template <typename Rule>
struct Slots {
  Pack<float, kUpdateWidth> packs[Rule::kSlots + 1];
};

template <typename Rule, size_t... s>
__device__ void ApplyRule(const Rule& rule, float gradient, [[maybe_unused]] int k,
                          float& parameter, Slots<Rule>& slots, std::index_sequence<s...>) {
  rule(gradient, parameter, slots.packs[s].elements[k]...);
}

// The largest of all threads' values. Whoever has it knows that all threads were here.
__device__ uint32_t LargestOfBlock(uint32_t largest) {
  __shared__ uint32_t warps[kUpdateWarps];
  for (int lanes = kWarpLanes / 2; lanes > 0; lanes /= 2) {
    const uint32_t other = __shfl_xor_sync(0xffffffffU, largest, lanes);
    largest = other > largest ? other : largest;
  }
  if (threadIdx.x % kWarpLanes == 0) warps[threadIdx.x / kWarpLanes] = largest;
  __syncthreads();
  for (const uint32_t other : warps) largest = other > largest ? other : largest;
  return largest;
}

template <typename T>
__device__ void StoreNarrow(const Pack<float, kUpdateWidth>& from, T* to) {
  Pack<T, kUpdateWidth> narrow;
  for (int k = 0; k < kUpdateWidth; ++k) narrow.set(k, from.elements[k]);
  StorePack(narrow, to);
}

// kAround: something is on around the rule, or norms scale it.
template <typename Rule, bool kAround>
__global__ void __launch_bounds__(kUpdateThreads)
    Update(Rule rule, graph::Around around, double rate, UpdateArrays arrays,
           const uint32_t* __restrict__ blocks, int precision_bits) {
  const int64_t block = blocks[blockIdx.x];
  if (kAround && arrays.factors != nullptr) {
    graph::ScaleByNorms(arrays.factors[arrays.tensors[block]], rate, rule, around);
  }
  const int place = static_cast<int>(threadIdx.x) * kUpdateWidth;
  const int64_t at = block * int64_t{kBlockElements} + place;
  const int left = static_cast<int>(arrays.counts[block]) - place;  // what lies behind is padding
  const float unit = UnitOf(arrays.exponents[block], precision_bits);
  const bool averages = kAround && around.average != graph::Around::Average::kNone;

  const auto totals = LoadPack<kUpdateWidth>(arrays.totals + at);
  auto parameters = LoadPack<kUpdateWidth>(arrays.parameters + at);
  Slots<Rule> slots;
#pragma unroll
  for (int s = 0; s < Rule::kSlots; ++s) {
    slots.packs[s] = LoadPack<kUpdateWidth>(arrays.slots[s] + at);
  }
  Pack<float, kUpdateWidth> average;
  if (averages) average = LoadPack<kUpdateWidth>(arrays.average + at);

  uint32_t largest = 0;
#pragma unroll
  for (int k = 0; k < kUpdateWidth; ++k) {
    if (k >= left) continue;
    float gradient = Dequantize(totals.elements[k], unit);
    const uint32_t magnitude = exact::FloatBits(gradient) & exact::kMagnitudeMask;
    largest = magnitude > largest ? magnitude : largest;
    float& parameter = parameters.elements[k];
    if (kAround) {
      gradient = around.Gradient(gradient, parameter);
      parameter = around.Decayed(parameter);
    }
    ApplyRule(rule, gradient, k, parameter, slots, std::make_index_sequence<Rule::kSlots>());
    if (averages) average.elements[k] = around.Averaged(parameter, average.elements[k]);
  }

  StorePack(parameters, arrays.parameters + at);
#pragma unroll
  for (int s = 0; s < Rule::kSlots; ++s) StorePack(slots.packs[s], arrays.slots[s] + at);
  if (averages) StorePack(average, arrays.average + at);
  if (arrays.bfloat16 != nullptr) StoreNarrow(parameters, arrays.bfloat16 + at);
  if (arrays.float16 != nullptr) StoreNarrow(parameters, arrays.float16 + at);

  largest = LargestOfBlock(largest);
  if (threadIdx.x == 0) {
    arrays.exponents[block] = static_cast<int16_t>(exact::ExponentOf(largest));
  }
}

}  // namespace

cudaError_t LaunchUpdate(const graph::TensorStep& step, const UpdateArrays& arrays,
                         const BlockList& list, int precision_bits, cudaStream_t stream) {
  return std::visit(
      [&](const auto& rule) {
        using Rule = std::decay_t<decltype(rule)>;
        const bool plain = step.around.plain() && arrays.factors == nullptr;
        const auto kernel = plain ? Update<Rule, false> : Update<Rule, true>;
        return Enqueue(kernel, list.count, dim3(kUpdateThreads), stream, rule, step.around,
                       step.rate, arrays, list.blocks, precision_bits);
      },
      step.formula);
}

// The largest exponent of each tensor: maxima of integers, whose order does not matter.

namespace {

constexpr int kTensorThreads = 1024;
constexpr int kExponentBatch = 8;  // exponents that a thread loads at once
constexpr int kFillThreads = 256;

// The largest of a block of threads' numbers, in all of them.
__device__ int LargestOfAll(int mine) {
  __shared__ int largest[kTensorThreads];
  largest[threadIdx.x] = mine;
  __syncthreads();
  for (unsigned half = kTensorThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half && largest[threadIdx.x + half] > largest[threadIdx.x]) {
      largest[threadIdx.x] = largest[threadIdx.x + half];
    }
    __syncthreads();
  }
  return largest[0];
}

// A block of threads takes a tensor.
__global__ void __launch_bounds__(kTensorThreads)
    ClampExponents(const uint32_t* __restrict__ first_blocks, int precision_bits,
                   int16_t* __restrict__ exponents) {
  const int64_t end = first_blocks[blockIdx.x + 1];
  const int64_t begin = static_cast<int64_t>(first_blocks[blockIdx.x]) + threadIdx.x;
  int largest = exact::ExponentOf(0);
#pragma unroll kExponentBatch
  for (int64_t b = begin; b < end; b += kTensorThreads) {
    largest = exponents[b] > largest ? exponents[b] : largest;
  }
  const int lowest = exact::LowestExponent(LargestOfAll(largest), precision_bits);
#pragma unroll kExponentBatch
  for (int64_t b = begin; b < end; b += kTensorThreads) {
    exponents[b] = exact::ClampExponent(exponents[b], lowest);
  }
}

__global__ void __launch_bounds__(kFillThreads)
    FillExponents(int16_t exponent, int64_t blocks, int16_t* __restrict__ exponents) {
  const int64_t b = static_cast<int64_t>(blockIdx.x) * kFillThreads + threadIdx.x;
  if (b < blocks) exponents[b] = exponent;
}

}  // namespace

cudaError_t LaunchClampExponents(const TensorBlocks& tensors, int precision_bits,
                                 int16_t* exponents, cudaStream_t stream) {
  return Enqueue(ClampExponents, tensors.count, dim3(kTensorThreads), stream, tensors.first_blocks,
                 precision_bits, exponents);
}

cudaError_t LaunchResetExponents(int64_t blocks, int precision_bits, int16_t* exponents,
                                 cudaStream_t stream) {
  const auto exponent = static_cast<int16_t>(precision_bits + exact::kSmallestUnitExponent);
  return Enqueue(FillExponents, CeilDiv(blocks, kFillThreads), dim3(kFillThreads), stream, exponent,
                 blocks, exponents);
}

}  // namespace ringmaster::cuda
