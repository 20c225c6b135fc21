// Depthwise conv2d and its gradients by own kernels: cuDNN has few engines for them in N,H,W,C, and
// not all give the same bits on every run. The table of kernels has no rows for them.
#include "worker/backend/cuda/kernels/windows.h"

#include <limits>
#include <utility>

#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/libraries/convolution_kernel.h"

namespace ringmaster::cuda {
namespace {

// Positions are ints on the GPU, those in the padding, too.
constexpr int64_t kMostPositions = std::numeric_limits<int>::max() / 4;

bool FitsInts(const graph::WindowAxis& axis) {
  return axis.input < kMostPositions && axis.extent() < kMostPositions &&
         axis.stride < kMostPositions;
}

DepthwiseAxis DepthwiseAxisOf(const graph::WindowAxis& axis) {
  const auto narrow = [](int64_t value) { return static_cast<int>(value); };
  return {narrow(axis.input),   narrow(axis.window),   narrow(axis.stride),
          narrow(axis.pad_low), narrow(axis.dilation), narrow(axis.output())};
}

class DepthwiseEngine final : public ConvolutionEngine {
 public:
  explicit DepthwiseEngine(const ConvolutionShape& shape)
      : pass_(shape.pass),
        type_(shape.type),
        relu_(shape.attributes.activation == graph::Activation::kRelu),
        bias_(shape.bias),
        shape_{shape.samples, shape.channels, shape.filters / shape.channels,
               DepthwiseAxisOf(shape.rows()), DepthwiseAxisOf(shape.columns())} {}

  [[nodiscard]] size_t workspace_bytes() const override {
    if (pass_ != ConvolutionPass::kWeightGradient) return 0;
    return DepthwiseWorkspace(shape_, graph::ByteSize(type_));
  }
  [[nodiscard]] Status Attach(std::span<const ConvolutionOperands> parts) override {
    operands_ = parts.front();  // it takes any number of samples
    return absl::OkStatus();
  }
  [[nodiscard]] Status Launch(cudaStream_t stream) override {
    const cudaError_t error =
        WithStorage(type_, [&]<typename T>(T) { return LaunchPass<T>(stream); });
    return FromCuda(error, Name(pass_));
  }

 private:
  template <typename T>
  cudaError_t LaunchPass(cudaStream_t stream) const {
    auto* const x = static_cast<T*>(operands_.x);
    auto* const y = static_cast<T*>(operands_.y);
    switch (pass_) {
      case ConvolutionPass::kForward:
        break;
      case ConvolutionPass::kInputGradient:
        return LaunchDepthwiseInputGradient(shape_, y, static_cast<const T*>(operands_.w), x,
                                            stream);
      case ConvolutionPass::kWeightGradient:
        return LaunchDepthwiseWeightGradient(shape_, x, y, static_cast<float*>(operands_.w),
                                             operands_.workspace, stream);
    }
    return LaunchDepthwise(shape_, x, static_cast<const T*>(operands_.w),
                           bias_ ? static_cast<const float*>(operands_.bias) : nullptr, relu_, y,
                           stream);
  }

  const ConvolutionPass pass_;
  const graph::DType type_;
  const bool relu_, bias_;
  const DepthwiseShape shape_;
  ConvolutionOperands operands_;
};

}  // namespace

StatusOr<std::unique_ptr<Kernel>> MakeDepthwiseKernel(std::string name,
                                                      const ConvolutionShape& shape,
                                                      BiasGradient bias_gradient) {
  if (!FitsInts(shape.rows()) || !FitsInts(shape.columns())) {
    return Error(absl::StatusCode::kUnimplemented,
                 "{}: the CUDA backend has no kernel for images of {} by {}", name, shape.height,
                 shape.width);
  }
  return MakeConvolutionKernel(std::move(name), {.shape = shape,
                                                 .variant = {.fused = true},
                                                 .engine = std::make_unique<DepthwiseEngine>(shape),
                                                 .bias_gradient = bias_gradient});
}

}  // namespace ringmaster::cuda
