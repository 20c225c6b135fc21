#include "worker/backend/cuda/kernels/elementwise.h"

#include "worker/backend/cuda/kernels/maps.h"
#include "worker/backend/cuda/kernels/sums.h"

namespace ringmaster::cuda {
namespace {

struct Relu {
  __device__ float operator()(float x) const { return x <= 0 ? 0.0F : x; }
};

struct ReluGradient {
  __device__ float operator()(float y, float dy) const { return y <= 0 ? 0.0F : dy; }
};

}  // namespace

template <typename T>
cudaError_t LaunchRelu(const T* x, T* y, int64_t count, cudaStream_t stream) {
  return LaunchMap(x, y, count, Relu{}, stream);
}

template <typename T>
cudaError_t LaunchReluGradient(const T* y, const T* dy, T* dx, int64_t count, cudaStream_t stream) {
  return LaunchMap(y, dy, dx, count, ReluGradient{}, stream);
}

template cudaError_t LaunchRelu(const float*, float*, int64_t, cudaStream_t);
template cudaError_t LaunchRelu(const __nv_bfloat16*, __nv_bfloat16*, int64_t, cudaStream_t);
template cudaError_t LaunchRelu(const __half*, __half*, int64_t, cudaStream_t);
template cudaError_t LaunchReluGradient(const float*, const float*, float*, int64_t, cudaStream_t);
template cudaError_t LaunchReluGradient(const __nv_bfloat16*, const __nv_bfloat16*, __nv_bfloat16*,
                                        int64_t, cudaStream_t);
template cudaError_t LaunchReluGradient(const __half*, const __half*, __half*, int64_t,
                                        cudaStream_t);

namespace {

struct Same {
  __device__ float operator()(float x) const { return x; }
};

}  // namespace

template <typename From, typename To>
cudaError_t LaunchCast(const From* x, To* y, int64_t count, cudaStream_t stream) {
  return LaunchMap(x, y, count, Same{}, stream);
}

template cudaError_t LaunchCast(const float*, float*, int64_t, cudaStream_t);
template cudaError_t LaunchCast(const float*, __nv_bfloat16*, int64_t, cudaStream_t);
template cudaError_t LaunchCast(const float*, __half*, int64_t, cudaStream_t);
template cudaError_t LaunchCast(const __nv_bfloat16*, float*, int64_t, cudaStream_t);
template cudaError_t LaunchCast(const __nv_bfloat16*, __nv_bfloat16*, int64_t, cudaStream_t);
template cudaError_t LaunchCast(const __nv_bfloat16*, __half*, int64_t, cudaStream_t);
template cudaError_t LaunchCast(const __half*, float*, int64_t, cudaStream_t);
template cudaError_t LaunchCast(const __half*, __nv_bfloat16*, int64_t, cudaStream_t);
template cudaError_t LaunchCast(const __half*, __half*, int64_t, cudaStream_t);

namespace {

template <typename Op>
struct UnaryForward {
  Op op;
  __device__ float operator()(float x) const { return static_cast<float>(op.Forward(Real(x))); }
};

template <typename Op>
struct UnaryBackward {
  Op op;
  __device__ float operator()(float x, float y, float dy) const {
    return static_cast<float>(op.Backward(Real(x), Real(y), Real(dy)));
  }
  // Where the formula reads one of x and y both are that one.
  __device__ float operator()(float read, float dy) const { return (*this)(read, read, dy); }
};

}  // namespace

template <typename T>
cudaError_t LaunchUnary(const graph::Kind& kind, const T* const inputs[3], T* y, int64_t count,
                        cudaStream_t stream) {
  return std::visit(
      [&]<typename Op>(const Op& op) {
        if constexpr (graph::UnaryOp<Op>) {
          return LaunchMap(inputs[0], y, count, UnaryForward<Op>{op}, stream);
        } else if constexpr (graph::UnaryGradientOp<Op>) {
          const UnaryBackward<typename Op::Of> function = {op};
          if constexpr (Op::kReads == graph::Reads::kBoth) {
            return LaunchMap(inputs[0], inputs[1], inputs[2], y, count, function, stream);
          } else {
            return LaunchMap(inputs[0], inputs[1], y, count, function, stream);
          }
        } else {
          return cudaErrorInvalidValue;
        }
      },
      kind);
}

template cudaError_t LaunchUnary(const graph::Kind&, const float* const[3], float*, int64_t,
                                 cudaStream_t);
template cudaError_t LaunchUnary(const graph::Kind&, const __nv_bfloat16* const[3], __nv_bfloat16*,
                                 int64_t, cudaStream_t);
template cudaError_t LaunchUnary(const graph::Kind&, const __half* const[3], __half*, int64_t,
                                 cudaStream_t);

// Losses and measures over pairs.

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
