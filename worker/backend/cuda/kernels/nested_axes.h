// Nested loops over the elements of a tensor, as kernels walk them: where element i has its place
// in two others. For kernels and for host code; values.
#pragma once

#include <cstdint>

#include "common/host_device.h"

namespace ringmaster::cuda {

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

}  // namespace ringmaster::cuda
