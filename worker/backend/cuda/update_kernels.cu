#include "worker/backend/cuda/update_kernels.h"

#include "common/exact/arithmetic.h"
#include "common/graph/update/formulas.h"
#include "worker/backend/cuda/exact_arithmetic.h"
#include "worker/backend/cuda/launch.h"
#include "worker/backend/cuda/packs.h"
#include "worker/backend/cuda/warp.h"

namespace ringmaster::cuda {
namespace {

using exact::kBlockElements;

// A thread has four elements: sixteen bytes of a parameter, two such loads of its integers.
constexpr int kUpdateWidth = 4;
constexpr int kUpdateThreads = static_cast<int>(kBlockElements) / kUpdateWidth;
constexpr int kUpdateWarps = kUpdateThreads / kWarpLanes;

// As many packs as a formula has slots, and one more where C++ wants one.
template <typename Formula>
struct Slots {
  Pack<float, kUpdateWidth> packs[Formula::kSlots + 1];
};

template <typename Formula>
__device__ void ApplyFormula(const Formula& formula, float gradient, int k, float& parameter,
                             Slots<Formula>& slots) {
  if constexpr (Formula::kSlots == 0) {
    formula(gradient, parameter);
  } else if constexpr (Formula::kSlots == 1) {
    formula(gradient, parameter, slots.packs[0].elements[k]);
  } else {
    formula(gradient, parameter, slots.packs[0].elements[k], slots.packs[1].elements[k]);
  }
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

template <typename Formula>
__global__ void __launch_bounds__(kUpdateThreads)
    Update(Formula formula, UpdateArrays arrays, int64_t first_block, int precision_bits) {
  const int64_t block = first_block + blockIdx.x;
  const int place = static_cast<int>(threadIdx.x) * kUpdateWidth;
  const int64_t at = block * int64_t{kBlockElements} + place;
  const int left = static_cast<int>(arrays.counts[block]) - place;  // what lies behind is padding
  const float unit = UnitOf(arrays.exponents[block], precision_bits);

  const auto totals = LoadPack<kUpdateWidth>(arrays.totals + at);
  auto parameters = LoadPack<kUpdateWidth>(arrays.parameters + at);
  Slots<Formula> slots;
#pragma unroll
  for (int s = 0; s < Formula::kSlots; ++s)
    slots.packs[s] = LoadPack<kUpdateWidth>(arrays.slots[s] + at);

  uint32_t largest = 0;
#pragma unroll
  for (int k = 0; k < kUpdateWidth; ++k) {
    if (k >= left) continue;
    const float gradient = Dequantize(totals.elements[k], unit);
    const uint32_t magnitude = exact::FloatBits(gradient) & exact::kMagnitudeMask;
    largest = magnitude > largest ? magnitude : largest;
    ApplyFormula(formula, gradient, k, parameters.elements[k], slots);
  }

  StorePack(parameters, arrays.parameters + at);
#pragma unroll
  for (int s = 0; s < Formula::kSlots; ++s) StorePack(slots.packs[s], arrays.slots[s] + at);
  if (arrays.bfloat16 != nullptr) StoreNarrow(parameters, arrays.bfloat16 + at);
  if (arrays.float16 != nullptr) StoreNarrow(parameters, arrays.float16 + at);

  largest = LargestOfBlock(largest);
  if (threadIdx.x == 0) {
    arrays.exponents[block] = static_cast<int16_t>(exact::ExponentOf(largest));
  }
}

}  // namespace

template <typename Formula>
cudaError_t LaunchUpdate(const Formula& formula, const UpdateArrays& arrays, int64_t first_block,
                         int64_t blocks, int precision_bits, cudaStream_t stream) {
  static_assert(Formula::kSlots <= UpdateArrays::kMaxSlots);
  return Enqueue(Update<Formula>, blocks, dim3(kUpdateThreads), stream, formula, arrays,
                 first_block, precision_bits);
}

template cudaError_t LaunchUpdate(const graph::PlainSgdFormula&, const UpdateArrays&, int64_t,
                                  int64_t, int, cudaStream_t);
template cudaError_t LaunchUpdate(const graph::MomentumSgdFormula&, const UpdateArrays&, int64_t,
                                  int64_t, int, cudaStream_t);
template cudaError_t LaunchUpdate(const graph::AdamFormula&, const UpdateArrays&, int64_t, int64_t,
                                  int, cudaStream_t);

}  // namespace ringmaster::cuda
