#include "worker/backend/cuda/kernels/pair_loss.h"

#include "worker/backend/cuda/kernels/elementwise.h"
#include "worker/backend/cuda/kernels/sums.h"

namespace ringmaster::cuda {
namespace {

constexpr int kPairWidth = kPackWidth<float>;

// What each block of threads has of the sum.
template <typename Op>
__global__ void __launch_bounds__(kElementwiseThreads)
    SumPairs(Op op, const float* __restrict__ predictions, const float* __restrict__ targets,
             int64_t count, double* __restrict__ sums) {
  const ElementwiseStrip<kPairWidth, float> p(predictions, count);
  const ElementwiseStrip<kPairWidth, float> t(targets, count);
  double sum = 0;
#pragma unroll
  for (int i = 0; i < kElementwisePacks; ++i) {
#pragma unroll
    for (int k = 0; k < kPairWidth; ++k) {
      const auto value =
          static_cast<float>(op.Value(Real(p.packs[i].get(k)), Real(t.packs[i].get(k))));
      const bool inside = ElementwisePlace<kPairWidth>(i) + k < count;
      sum += inside ? static_cast<double>(value) : 0;
    }
  }
  sum = SumOverBlock<kElementwiseThreads>(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

template <typename Op>
struct PairSlope {
  Op op;
  const float* seed;
  float share;
  __device__ float operator()(float p, float t) const {
    return static_cast<float>(op.Slope(Real(p), Real(t))) * (*seed * share);
  }
};

}  // namespace

size_t PairLossWorkspace(const PairCount& count) {
  return sizeof(double) * static_cast<size_t>(ElementwiseBlocks<kPairWidth>(count.pairs()));
}

cudaError_t LaunchPairLoss(const graph::Kind& kind, const PairCount& count,
                           const float* predictions, const float* targets, float* sum,
                           void* workspace, cudaStream_t stream) {
  auto* const sums = static_cast<double*>(workspace);
  const int64_t blocks = ElementwiseBlocks<kPairWidth>(count.pairs());
  const cudaError_t error = std::visit(
      [&]<typename Op>(const Op& op) {
        if constexpr (graph::PairLossOp<Op>) {
          return Enqueue(SumPairs<Op>, blocks, dim3(kElementwiseThreads), stream, op, predictions,
                         targets, count.pairs(), sums);
        } else {
          return cudaErrorInvalidValue;
        }
      },
      kind);
  if (error != cudaSuccess) return error;
  return LaunchSum(blocks, sums, static_cast<double>(count.elements), sum, stream);
}

cudaError_t LaunchPairLossGradient(const graph::Kind& kind, const PairCount& count,
                                   const float* predictions, const float* targets,
                                   const float* seed, float* dpredictions, cudaStream_t stream) {
  const auto share = static_cast<float>(1 / static_cast<double>(count.elements));
  return std::visit(
      [&]<typename Op>(const Op& op) {
        if constexpr (graph::PairLossGradientOp<Op>) {
          const PairSlope<typename Op::LossOf> slope = {op, seed, share};
          return LaunchMap(predictions, targets, dpredictions, count.pairs(), slope, stream);
        } else {
          return cudaErrorInvalidValue;
        }
      },
      kind);
}

}  // namespace ringmaster::cuda
