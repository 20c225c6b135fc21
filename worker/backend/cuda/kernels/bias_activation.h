// What stands round products and convolutions, on matrices of rows and channels: bias and
// activation, the gradient of the bias, and copies with channels added or left out. Plain launchers
// that nvcc compiles; each returns what cudaGetLastError says. No atomics: the same bits on every
// run.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "common/graph/tensor_type.h"

namespace ringmaster::cuda {

struct MatrixSize {
  int64_t rows, channels;
};

// y = activation(x + bias), computed in float32; `bias` may be nullptr, and y may be x. For (float,
// float), (float, 16 bit) and twice the same 16-bit type.
template <typename X, typename Y>
cudaError_t LaunchBiasActivation(MatrixSize size, const X* x, const float* bias,
                                 graph::Activation activation, Y* y, cudaStream_t stream);

// sums[c] = sum over rows of x[r][c], in float32. Scratch: ColumnSumScratch bytes, a function of
// the shape alone.
template <typename X>
size_t ColumnSumScratch(MatrixSize size);
template <typename X>
cudaError_t LaunchColumnSums(MatrixSize size, const X* x, float* scratch, float* sums,
                             cudaStream_t stream);

// y[r][c] = x[r][c], or 0 where x has no such element; what y lacks is left out. For twice the same
// type and for (16 bit, float).
template <typename X, typename Y>
cudaError_t LaunchResize(MatrixSize from, const X* x, MatrixSize to, Y* y, cudaStream_t stream);

}  // namespace ringmaster::cuda
