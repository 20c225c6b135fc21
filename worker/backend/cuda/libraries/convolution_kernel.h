// The kernel of a convolution: what a library's variant of its shape leaves over
// (convolution_shape.h) is done round the library's plan by own kernels, on copies in the
// workspace: channels that are added or left out, gradients of weights made wide, bias and
// activation, the gradient of the bias. Core's thread only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "common/graph/graph.h"
#include "common/graph/tensor_type.h"
#include "common/status.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/libraries/convolution_shape.h"

namespace ringmaster::cuda {

// What stands round products, too (kernels/products.h), by the graph's types. Thread-safe (free
// functions that enqueue).

// A matrix in device memory; how one sees an image: rows are positions, columns channels.
struct DeviceMatrix {
  void* data = nullptr;
  int64_t rows = 0, columns = 0;
  graph::DType type = graph::DType::kFloat32;

  [[nodiscard]] size_t bytes() const {
    return static_cast<size_t>(rows * columns) * graph::ByteSize(type);
  }
  [[nodiscard]] bool SameForm(const DeviceMatrix& other) const {
    return rows == other.rows && columns == other.columns && type == other.type;
  }
};

// y = activation(x + bias), in float32; `bias` may be nullptr, y may be x. `x` is of y's type or
// float32.
[[nodiscard]] Status AddBias(const DeviceMatrix& x, const float* bias, graph::Activation activation,
                             const DeviceMatrix& y, cudaStream_t stream);

// Scratch of SumColumns, in bytes; `data` has no part in it.
[[nodiscard]] size_t ColumnSumWorkspace(const DeviceMatrix& x);
// The sum over rows of each column.
[[nodiscard]] Status SumColumns(const DeviceMatrix& x, void* workspace, float* sums,
                                cudaStream_t stream);

// Copies what both have and sets the rest of y to 0; y is of x's type or float32.
[[nodiscard]] Status Resize(const DeviceMatrix& x, const DeviceMatrix& y, cudaStream_t stream);

// Convolutions.

// Device addresses, by what they are in the forward pass.
struct ConvolutionOperands {
  void* x = nullptr;
  void* w = nullptr;
  void* y = nullptr;
  void* bias = nullptr;  // where the shape has one
  void* workspace = nullptr;
};

// A convolution that a library is ready to compute.
class ConvolutionEngine {
 public:
  virtual ~ConvolutionEngine() = default;
  [[nodiscard]] virtual size_t workspace_bytes() const = 0;
  // Of each part.
  [[nodiscard]] virtual Status Attach(std::span<const ConvolutionOperands> parts) = 0;
  // Enqueues the parts one after the other, and waits for nothing.
  [[nodiscard]] virtual Status Launch(cudaStream_t stream) = 0;
};

enum class BiasGradient : uint8_t { kNone, kWanted };

struct ConvolutionParts {
  ConvolutionShape shape;      // of the node
  ConvolutionVariant variant;  // that `engine` computes, of a part
  int64_t parts = 1;           // PartsOf, which divides the samples
  std::unique_ptr<ConvolutionEngine> engine;
  BiasGradient bias_gradient = BiasGradient::kNone;  // of a gradient of weights
};

// `name`: of the node, for errors.
[[nodiscard]] std::unique_ptr<Kernel> MakeConvolutionKernel(std::string name,
                                                            ConvolutionParts parts);

// Of a depthwise shape, without a library: windows.cc. UNIMPLEMENTED when the image is too large.
[[nodiscard]] StatusOr<std::unique_ptr<Kernel>> MakeDepthwiseKernel(std::string name,
                                                                    const ConvolutionShape& shape,
                                                                    BiasGradient bias_gradient);

}  // namespace ringmaster::cuda
