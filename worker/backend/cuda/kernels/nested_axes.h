// Ops that walk over the axes of a tensor: those in which shapes meet, and copies between boxes.
// Launchers enqueue and wait for nothing; each returns what cudaGetLastError says.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "common/numeric/host_device.h"

namespace ringmaster::cuda {

// Nested loops over the elements of a tensor, as kernels walk them: where element i has its place
// in two others. For kernels and for host code; values.

// A tensor has no more axes (common/graph/message).
inline constexpr int kMostAxes = 9;

// By how many elements a step moves in each of two tensors. 0: all steps stay in one place.
struct NestedAxis {
  int64_t extent;
  int64_t strides[2];
};

struct NestedOffsets {
  int64_t at[2];
};

// Outermost first.
struct NestedAxes {
  int count = 0;
  NestedAxis axes[kMostAxes] = {};

  void Append(const NestedAxis& axis) { axes[count++] = axis; }
  // Steps of all axes together.
  RING_HOST_DEVICE int64_t steps() const {
    int64_t steps = 1;
    for (int i = 0; i < count; ++i) steps *= axes[i].extent;
    return steps;
  }
  // Of step i, which is below steps(). Index: uint32_t, where they can be counted with it, divides
  // several times as fast as uint64_t.
  template <typename Index>
  RING_HOST_DEVICE NestedOffsets At(Index i) const {
    NestedOffsets offsets = {{0, 0}};
    for (int axis = count - 1; axis >= 0; --axis) {
      // Nothing is outside the outermost axis.
      const Index outer = axis == 0 ? 0 : i / static_cast<Index>(axes[axis].extent);
      const auto step = static_cast<int64_t>(i - outer * static_cast<Index>(axes[axis].extent));
      offsets.at[0] += step * axes[axis].strides[0];
      offsets.at[1] += step * axes[axis].strides[1];
      i = outer;
    }
    return offsets;
  }
};

// Ops in which tensors of different shapes meet element by element: add, multiply and reduce_to.
// T: float, __nv_bfloat16, __half.

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

// Copies between boxes of dense tensors, with zeros round what is copied: concat, split, slice and
// pad. Bytes are moved, whatever their type.

// One axis of the box that is written, and of where it comes from.
struct BoxAxis {
  int64_t extent;
  int64_t from_stride, to_stride;
  int64_t low, high;  // steps from low up to high have an element to come from, the others are 0

  [[nodiscard]] bool whole() const { return low == 0 && high == extent; }
};

// A walk over a box; all numbers in elements, or in what a kernel moves at once.
struct BoxWalk {
  int count = 0;
  BoxAxis axes[kMostAxes] = {};          // outermost first
  int64_t first_from = 0, first_to = 0;  // of step 0 of all axes; there need not be an element

  // Inside the others; as a part of the last one where both tensors simply go on.
  void Append(const BoxAxis& axis);
  [[nodiscard]] int64_t steps() const;
};

// `element`: bytes of one; 2 or 4. x and y begin at multiples of kAlignment.
cudaError_t LaunchBoxCopy(const BoxWalk& walk, int element, const void* x, void* y,
                          cudaStream_t stream);

}  // namespace ringmaster::cuda
