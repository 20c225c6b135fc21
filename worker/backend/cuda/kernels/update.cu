#include "worker/backend/cuda/kernels/update.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "common/exact/arithmetic.h"
#include "worker/backend/cuda/kernels/exact.h"
#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/packs.h"

namespace ringmaster::cuda {
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

// kAround: something is on around the rule.
template <typename Rule, bool kAround>
__global__ void __launch_bounds__(kUpdateThreads)
    Update(Rule rule, graph::Around around, UpdateArrays arrays,
           const uint32_t* __restrict__ blocks, int precision_bits) {
  const int64_t block = blocks[blockIdx.x];
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
        const auto kernel = step.around.plain() ? Update<Rule, false> : Update<Rule, true>;
        return Enqueue(kernel, list.count, dim3(kUpdateThreads), stream, rule, step.around, arrays,
                       list.blocks, precision_bits);
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
