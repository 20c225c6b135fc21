// A thread takes a lane of a block's squares, every eighth element; neighbours are added up first.
// So the threads of a block are the leaves of one pairwise tree, whatever they hold: what is not
// there is 0, which changes no sum of squares.
#include "worker/backend/cuda/kernels/norms.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "common/exact/arithmetic.h"
#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/packs.h"

namespace ringmaster::cuda {
namespace {

using exact::kBlockElements;

constexpr unsigned kSquareLanes = 8;  // of common/numeric/arithmetic.h
constexpr unsigned kSquareThreads = kRunBlocks * kSquareLanes;
constexpr unsigned kSquareWarps = kSquareThreads / kWarpLanes;
constexpr int kSquareBatch = 8;  // elements that a thread loads at once
constexpr int kTreeLevels = 32;

static_assert(kBlockElements % (kSquareLanes * kSquareBatch) == 0);
static_assert(kSquareWarps <= kWarpLanes && (kSquareWarps & (kSquareWarps - 1)) == 0);

// The pairwise tree over all threads' values; every thread has it.
__device__ double SumOfThreads(double sum) {
  __shared__ double warps[kSquareWarps];
  for (unsigned lanes = 1; lanes < kWarpLanes; lanes *= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, static_cast<int>(lanes));
  }
  __syncthreads();  // nobody still reads what the last call left
  if (threadIdx.x % kWarpLanes == 0) warps[threadIdx.x / kWarpLanes] = sum;
  __syncthreads();
  sum = warps[threadIdx.x % kSquareWarps];
  for (unsigned lanes = 1; lanes < kSquareWarps; lanes *= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, static_cast<int>(lanes));
  }
  return sum;
}

// PairwiseSum(0, count, value), for every thread. As many values as there are threads at a time,
// whose sums wait, as in a binary counter, for that of the neighbour of their size.
template <typename Value>
__device__ double SumOfAll(int64_t count, const Value& value) {
  double waiting[kTreeLevels] = {};
  uint32_t sums = 0;
  for (int64_t first = 0; first < count; first += kSquareThreads, ++sums) {
    const int64_t mine = first + threadIdx.x;
    double sum = SumOfThreads(mine < count ? value(mine) : 0.0);
    int level = 0;
    for (; (sums >> level & 1) != 0; ++level) sum = waiting[level] + sum;
    waiting[level] = sum;
  }
  double sum = 0;
  for (int level = 0; level < kTreeLevels; ++level) {
    if ((sums >> level & 1) != 0) sum = waiting[level] + sum;
  }
  return sum;
}

// What is squared: an element of a block. Padding may be loaded.

struct Gradients {
  const int64_t* totals;
  const int16_t* exponents;
  int precision_bits;
  graph::Around limited;

  struct Block {
    float unit;
    graph::Around limited;
  };
  __device__ Block block(int64_t b) const {
    return {UnitOf(exponents[b], precision_bits), limited};
  }
  using Stored = int64_t;
  __device__ Stored Load(int64_t at) const { return totals[at]; }
  __device__ static float Value(const Block& block, Stored stored) {
    return block.limited.Limited(Dequantize(stored, block.unit));
  }
};

struct WeightValues {
  const float* parameters;

  struct Block {};
  __device__ Block block(int64_t /*b*/) const { return {}; }
  using Stored = float;
  __device__ Stored Load(int64_t at) const { return parameters[at]; }
  __device__ static float Value(const Block& /*block*/, Stored stored) { return stored; }
};

template <typename Values>
__global__ void __launch_bounds__(kSquareThreads)
    SumSquares(Values values, const uint32_t* __restrict__ counts,
               const BlockRun* __restrict__ runs, double* __restrict__ sums) {
  const BlockRun run = runs[blockIdx.x];
  const unsigned lane = threadIdx.x % kSquareLanes;
  const unsigned place = threadIdx.x / kSquareLanes;
  double sum = 0;
  if (place < run.block_count) {
    const int64_t b = static_cast<int64_t>(run.first_block) + place;
    const unsigned count = counts[b];
    const auto block = values.block(b);
    for (unsigned first = lane; first < count; first += kSquareLanes * kSquareBatch) {
      typename Values::Stored stored[kSquareBatch];
#pragma unroll
      for (int k = 0; k < kSquareBatch; ++k) {
        stored[k] = values.Load(b * int64_t{kBlockElements} + first + k * kSquareLanes);
      }
#pragma unroll
      for (int k = 0; k < kSquareBatch; ++k) {
        if (first + k * kSquareLanes >= count) continue;
        const double value{Values::Value(block, stored[k])};
        sum += value * value;
      }
    }
  }
  sum = SumOfThreads(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// Slots of an element.
template <typename Rule>
struct ElementSlots {
  float values[Rule::kSlots];
};

template <typename Rule, size_t... s>
__device__ float PrepareElement(const Rule& rule, float gradient, float weight,
                                ElementSlots<Rule>& slots, std::index_sequence<s...>) {
  rule.Prepare(gradient, slots.values[s]...);
  return rule.Step(weight, slots.values[s]...);
}

template <typename Rule>
__global__ void __launch_bounds__(kSquareThreads)
    Prepare(Rule rule, graph::Around around, double rate, UpdateArrays arrays, int precision_bits,
            const BlockRun* __restrict__ runs, double* __restrict__ sums) {
  const BlockRun run = runs[blockIdx.x];
  graph::ScaleByNorms(arrays.factors[run.tensor], rate, rule, around);
  const unsigned lane = threadIdx.x % kSquareLanes;
  const unsigned place = threadIdx.x / kSquareLanes;
  double sum = 0;
  if (place < run.block_count) {
    const int64_t b = static_cast<int64_t>(run.first_block) + place;
    const unsigned count = arrays.counts[b];
    const float unit = UnitOf(arrays.exponents[b], precision_bits);
    for (unsigned first = lane; first < count; first += kSquareLanes * kSquareBatch) {
      const int64_t at = b * int64_t{kBlockElements} + first;
      int64_t totals[kSquareBatch];
      float weights[kSquareBatch];
      ElementSlots<Rule> slots[kSquareBatch];
#pragma unroll
      for (int k = 0; k < kSquareBatch; ++k) {
        totals[k] = arrays.totals[at + k * kSquareLanes];
        weights[k] = arrays.parameters[at + k * kSquareLanes];
#pragma unroll
        for (int s = 0; s < Rule::kSlots; ++s) {
          slots[k].values[s] = arrays.slots[s][at + k * kSquareLanes];
        }
      }
#pragma unroll
      for (int k = 0; k < kSquareBatch; ++k) {
        if (first + k * kSquareLanes >= count) continue;
        const float gradient = around.Gradient(Dequantize(totals[k], unit), 0);
        const double step{PrepareElement(rule, gradient, weights[k], slots[k],
                                         std::make_index_sequence<Rule::kSlots>())};
        sum += step * step;
#pragma unroll
        for (int s = 0; s < Rule::kSlots; ++s) {
          arrays.slots[s][at + k * kSquareLanes] = slots[k].values[s];
        }
      }
    }
  }
  sum = SumOfThreads(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// A block of threads takes a tensor.
__global__ void __launch_bounds__(kSquareThreads)
    SumRuns(const TensorRuns* __restrict__ tensors, const double* __restrict__ sums,
            double* __restrict__ squares) {
  const TensorRuns tensor = tensors[blockIdx.x];
  const double sum =
      SumOfAll(tensor.count, [&](int64_t run) { return sums[int64_t{tensor.first} + run]; });
  if (threadIdx.x == 0) squares[blockIdx.x] = sum;
}

// One block of threads.
__global__ void __launch_bounds__(kSquareThreads)
    MakeFactors(graph::NormRule rule, const graph::TensorNorms* __restrict__ tensors, int64_t count,
                SquareSums squares, graph::NormFactors* __restrict__ factors) {
  double all = 0;
  if (rule.global_norm != 0) {  // for every thread
    all = SumOfAll(count, [&](int64_t t) { return tensors[t].adds ? 0.0 : squares.gradients[t]; });
  }
  for (int64_t t = threadIdx.x; t < count; t += kSquareThreads) {
    factors[t] = rule.FactorsOf(
        {.gradient = squares.gradients[t], .weight = squares.weights[t], .step = squares.steps[t]},
        tensors[t], all);
  }
}

}  // namespace

cudaError_t LaunchGradientSquares(const UpdateArrays& arrays, float limit, int precision_bits,
                                  const RunSums& runs, cudaStream_t stream) {
  const Gradients gradients = {arrays.totals, arrays.exponents, precision_bits, {.limit = limit}};
  return Enqueue(SumSquares<Gradients>, runs.count, dim3(kSquareThreads), stream, gradients,
                 arrays.counts, runs.runs, runs.sums);
}

cudaError_t LaunchWeightSquares(const UpdateArrays& arrays, const RunSums& runs,
                                cudaStream_t stream) {
  return Enqueue(SumSquares<WeightValues>, runs.count, dim3(kSquareThreads), stream,
                 WeightValues{arrays.parameters}, arrays.counts, runs.runs, runs.sums);
}

cudaError_t LaunchPrepare(const graph::TensorStep& step, const UpdateArrays& arrays,
                          int precision_bits, const RunSums& runs, cudaStream_t stream) {
  return std::visit(
      [&](const auto& rule) {
        using Rule = std::decay_t<decltype(rule)>;
        if constexpr (Rule::kAdapts == graph::Adapts::kByStep) {
          return Enqueue(Prepare<Rule>, runs.count, dim3(kSquareThreads), stream, rule, step.around,
                         step.rate, arrays, precision_bits, runs.runs, runs.sums);
        } else {
          return cudaSuccess;
        }
      },
      step.formula);
}

cudaError_t LaunchTensorSquares(const TensorRuns* tensors, int64_t count, const double* sums,
                                double* squares, cudaStream_t stream) {
  return Enqueue(SumRuns, count, dim3(kSquareThreads), stream, tensors, sums, squares);
}

cudaError_t LaunchFactors(const graph::NormRule& rule, const graph::TensorNorms* tensors,
                          int64_t count, const SquareSums& squares, graph::NormFactors* factors,
                          cudaStream_t stream) {
  return Enqueue(MakeFactors, 1, dim3(kSquareThreads), stream, rule, tensors, count, squares,
                 factors);
}

}  // namespace ringmaster::cuda
