// Ops in which tensors of different shapes meet element by element: add, multiply and reduce_to.
// T: float, __nv_bfloat16, __half. Launchers enqueue and wait for nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "worker/backend/cuda/kernels/nested_axes.h"

namespace ringmaster::cuda {

// y = a + b and y = a b, over all elements of y: by `axes`, of a and of b, whose last strides are 0
// or 1.
template <typename T>
cudaError_t LaunchAdd(const NestedAxes& axes, const T* a, const T* b, T* y, cudaStream_t stream);
template <typename T>
cudaError_t LaunchMultiply(const NestedAxes& axes, const T* a, const T* b, T* y,
                           cudaStream_t stream);

// Which elements of x make a sum: that of element i of y is over x[kept(i) + summed(s)] for all s.
// Their first strides are those in x; the second ones say nothing.
struct Reduction {
  NestedAxes kept, summed;

  // Whether neighbours of x go into neighbours of y, not into one of them.
  [[nodiscard]] bool keeps_last() const {
    return kept.count > 0 && kept.axes[kept.count - 1].strides[0] == 1;
  }
};

// Scratch of LaunchReduceTo, in bytes.
template <typename T>
size_t ReduceToWorkspace(const Reduction& reduction);

// Sums in float32, in an order that the shapes alone decide. To: T or float.
template <typename T, typename To>
cudaError_t LaunchReduceTo(const Reduction& reduction, const T* x, To* y, void* workspace,
                           cudaStream_t stream);

}  // namespace ringmaster::cuda
