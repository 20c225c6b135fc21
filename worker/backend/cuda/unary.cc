#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/kernel_table.h"
#include "worker/backend/cuda/kernels/elementwise.h"

namespace ringmaster::cuda {

// relu and its gradient, which masks by the output. NaN passes, so that it reaches the loss.
StatusOr<std::unique_ptr<Kernel>> BindRelu(const BindContext& context) {
  const int64_t count = graph::Elements(context.output(0).shape);
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLaunch([count](const Operands& operands, cudaStream_t stream) {
      return FromCuda(LaunchRelu(operands.input<T>(0), operands.output<T>(0), count, stream),
                      "relu");
    });
  });
}

StatusOr<std::unique_ptr<Kernel>> BindReluGradient(const BindContext& context) {
  const int64_t count = graph::Elements(context.output(0).shape);
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLaunch([count](const Operands& operands, cudaStream_t stream) {
      return FromCuda(LaunchReluGradient(operands.input<T>(0), operands.input<T>(1),
                                         operands.output<T>(0), count, stream),
                      "relu_gradient");
    });
  });
}

// cast between float32, bfloat16 and float16, rounded half to even.

namespace {

template <typename From, typename To>
std::unique_ptr<Kernel> MakeCast(int64_t count) {
  return MakeLaunch([count](const Operands& operands, cudaStream_t stream) {
    return FromCuda(LaunchCast(operands.input<From>(0), operands.output<To>(0), count, stream),
                    "cast");
  });
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindCast(const BindContext& context) {
  const graph::Value& x = context.input(0);
  const graph::Value& y = context.output(0);
  if (x.dtype == graph::DType::kInt32 || y.dtype == graph::DType::kInt32) {
    return Error(
        absl::StatusCode::kUnimplemented,
        "{} (cast): the CUDA backend casts between float32, bfloat16 and float16, not {} to {}",
        context.node.name, graph::Name(x.dtype), graph::Name(y.dtype));
  }
  const int64_t count = graph::Elements(x.shape);
  return WithStorage(x.dtype, [&]<typename From>(From) {
    return WithStorage(y.dtype, [&]<typename To>(To) { return MakeCast<From, To>(count); });
  });
}

// The elementwise family and its gradients.
StatusOr<std::unique_ptr<Kernel>> BindUnary(const BindContext& context) {
  const graph::Value& y = context.output(0);
  return WithStorage(y.dtype, [&]<typename T>(T) {
    return MakeLaunch([kind = context.node.kind, count = graph::Elements(y.shape)](
                          const Operands& operands, cudaStream_t stream) {
      const T* inputs[3] = {};
      for (size_t i = 0; i < operands.inputs.size(); ++i) inputs[i] = operands.input<T>(i);
      return FromCuda(LaunchUnary(kind, inputs, operands.output<T>(0), count, stream),
                      graph::TraitsOf(kind).name);
    });
  });
}

}  // namespace ringmaster::cuda
