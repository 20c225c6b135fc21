// What a library computes of a node, a product of matrices or a convolution, as an engine that is
// ready to, and the kernel of a convolution round one: what a library's variant of its shape leaves
// over (convolution_shape.h) is done by own kernels, on copies in the workspace: channels that are
// added or left out, gradients of weights made wide, those of parts added up, bias and activation,
// the gradient of the bias. Core's thread only.
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

// Products.

// Device addresses of matrices, each a multiple of kProductAlignment; of any scratch.
struct MatmulOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  void* workspace = nullptr;
};

// kAdd: c += op(a) op(b), of a float32 c.
enum class MatmulResult : uint8_t { kWrite, kAdd };

// A product that a library is ready to compute.
class MatmulEngine {
 public:
  virtual ~MatmulEngine() = default;
  [[nodiscard]] virtual size_t workspace_bytes() const = 0;
  // Enqueues on the stream, which may be captured, and waits for nothing.
  [[nodiscard]] virtual Status Launch(const MatmulOperands& operands, MatmulResult result,
                                      cudaStream_t stream) = 0;
};

// Of whichever library a program has: cuBLASLt (cublas_matmul.cc); the tests without a GPU have
// loops. By the kernel table's row, else by the library's first choice. FAILED_PRECONDITION when
// the library refuses the row.
[[nodiscard]] StatusOr<std::unique_ptr<MatmulEngine>> MakeMatmulEngine(const BindContext& context,
                                                                       const MatmulShape& shape);

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
  // Enqueues a part, and waits for nothing.
  [[nodiscard]] virtual Status Launch(size_t part, cudaStream_t stream) = 0;
};

struct LibraryConvolution {
  ConvolutionVariant variant;  // that `engine` computes
  std::unique_ptr<ConvolutionEngine> engine;
};

// Of a part (PartsOf) of the context's node, by whichever library a program has: cuDNN
// (plan_cache.cc). See ChooseConvolution.
[[nodiscard]] StatusOr<LibraryConvolution> MakeConvolutionEngine(const BindContext& context);

enum class BiasGradient : uint8_t { kNone, kWanted };

struct ConvolutionParts {
  ConvolutionShape shape;                            // of the node
  int64_t parts = 1;                                 // PartsOf, which divides the samples
  LibraryConvolution library;                        // of a part
  BiasGradient bias_gradient = BiasGradient::kNone;  // of a gradient of weights
};

// Parts go one after the other, those of a gradient of weights side by side, as long as the library
// wants little scratch. `name`: of the node, for errors.
[[nodiscard]] StatusOr<std::unique_ptr<Kernel>> MakeConvolutionKernel(std::string name,
                                                                      ConvolutionParts parts);

// Of a shape that is a product of patches, and an engine of it, MatmulOf: a part of the samples
// after the other, in their order, which a gradient of weights adds up in float32.
[[nodiscard]] std::unique_ptr<Kernel> MakePatchKernel(const ConvolutionShape& shape,
                                                      const PatchProduct& product,
                                                      std::unique_ptr<MatmulEngine> engine,
                                                      BiasGradient bias_gradient);

// Of a depthwise shape, without a library: windows.cc. UNIMPLEMENTED when the image is too large.
[[nodiscard]] StatusOr<std::unique_ptr<Kernel>> MakeDepthwiseKernel(std::string name,
                                                                    const ConvolutionShape& shape,
                                                                    BiasGradient bias_gradient);

}  // namespace ringmaster::cuda
