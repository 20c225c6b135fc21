// Patches of images: what the window of a convolution sees at each position, as the row of a
// matrix, so that a convolution of few channels becomes a product (conv2d.cc).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ringmaster::cuda {

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
