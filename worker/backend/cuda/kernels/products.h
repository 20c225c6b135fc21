// What stands round the products and convolutions of libraries, and what makes products of
// convolutions. Launchers enqueue and wait for nothing; each returns what cudaGetLastError says.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "common/graph/tensor_type.h"

namespace ringmaster::cuda {

// On matrices of rows and channels: bias and activation, the gradient of the bias, and copies with
// channels added or left out. No atomics: the same bits on every run.

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

// Patches of images: what the window of a convolution sees at each position, as the row of a
// matrix, so that a convolution of few channels becomes a product (PatchProductOf).

struct PatchShape {
  int64_t samples;
  int height, width, channels;  // of x
  int window_height, window_width, stride_height, stride_width, pad_top, pad_left;
  int output_height, output_width;
  int columns;  // of a patch's row: window_height * window_width * channels and zeros, whole packs

  // Elements from where the left padding begins, as far as windows reach or x does.
  int pitch() const {
    const int reach = (output_width - 1) * stride_width + window_width;
    const int there = pad_left + width;
    return (reach > there ? reach : there) * channels;
  }
};

inline constexpr int kMostPatchColumns = 1024;
// Of the rows of x under a row of positions: a block of threads has them in shared memory.
inline constexpr int kMostPatchElements = 20 * 1024;
[[nodiscard]] bool CanCutPatches(const PatchShape& shape);

// patches(N P Q,columns) of x(N,H,W,C), row by row of the window, then its columns, then channels;
// of 16-bit elements, whatever they mean. cudaErrorNotSupported where they cannot be cut.
cudaError_t LaunchPatches(const PatchShape& shape, const void* x, void* patches,
                          cudaStream_t stream);

}  // namespace ringmaster::cuda
