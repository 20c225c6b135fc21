// What stands round products and convolutions (kernels/bias_activation.h), by the graph's types.
// Thread-safe (free functions that enqueue).
#pragma once

#include <cuda_runtime_api.h>

#include "common/graph/graph.h"
#include "common/graph/tensor_type.h"
#include "common/status.h"

namespace ringmaster::cuda {

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

}  // namespace ringmaster::cuda
