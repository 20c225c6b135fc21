// Moves elements between two places with strides of their own: what transposes, broadcasts, slices,
// reversals and paddings have in common. Immutable; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/support/stablehlo/tensor.h"

namespace ringmaster::testing::stablehlo {

// A box of elements; offsets and strides in elements, of the place they go to and of the one they
// come from. Strides may be 0 or negative.
struct Box {
  Shape extents;
  Shape to_strides;
  Shape from_strides;
  int64_t to_offset = 0;
  int64_t from_offset = 0;
};

class Walk {
 public:
  explicit Walk(const Box& box);

  void Copy(size_t element_bytes, std::byte* to, const std::byte* from) const;

 private:
  struct Axis {
    int64_t extent, to, from;
  };
  template <typename T>
  void CopyTyped(T* to, const T* from) const;
  template <typename T>
  void CopyAxes(size_t axis, T* to, const T* from) const;
  template <typename T>
  void CopyLast(T* to, const T* from) const;
  template <typename T>
  void CopyPair(size_t axis, T* to, const T* from) const;

  std::vector<Axis> axes_;  // outermost first, as few as possible
  int64_t to_offset_ = 0;
  int64_t from_offset_ = 0;
  bool empty_ = false;
};

// The strides of axes `order` of a dense tensor.
[[nodiscard]] Shape PermutedStrides(std::span<const int64_t> shape, std::span<const int64_t> order);
[[nodiscard]] Shape Permuted(std::span<const int64_t> values, std::span<const int64_t> order);

}  // namespace ringmaster::testing::stablehlo
