// Copies between boxes of dense tensors, with zeros round what is copied: concat, split, slice and
// pad. Bytes are moved, whatever their type. Enqueues and waits for nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "worker/backend/cuda/kernels/nested_axes.h"

namespace ringmaster::cuda {

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
