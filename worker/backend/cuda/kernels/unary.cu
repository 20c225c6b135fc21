#include "worker/backend/cuda/kernels/unary.h"

#include "worker/backend/cuda/kernels/elementwise.h"

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

}  // namespace ringmaster::cuda
