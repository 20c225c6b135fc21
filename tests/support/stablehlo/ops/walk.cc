#include "tests/support/stablehlo/ops/walk.h"

#include <algorithm>
#include <cstring>

#include "tests/support/stablehlo/number.h"

namespace ringmaster::testing::stablehlo {

Walk::Walk(const Box& box) : to_offset_(box.to_offset), from_offset_(box.from_offset) {
  for (size_t i = 0; i < box.extents.size(); ++i) {
    const Axis axis{box.extents[i], box.to_strides[i], box.from_strides[i]};
    empty_ |= axis.extent <= 0;
    if (axis.extent == 1) continue;
    // Two axes that follow each other in both places are one.
    if (!axes_.empty() && axes_.back().to == axis.to * axis.extent &&
        axes_.back().from == axis.from * axis.extent) {
      axes_.back() = {axes_.back().extent * axis.extent, axis.to, axis.from};
    } else {
      axes_.push_back(axis);
    }
  }
  if (axes_.empty()) axes_.push_back({1, 1, 1});
}

void Walk::Copy(size_t element_bytes, std::byte* to, const std::byte* from) const {
  if (empty_) return;
  DispatchSize(element_bytes, [&](auto zero) {
    using T = decltype(zero);
    CopyTyped(reinterpret_cast<T*>(to), reinterpret_cast<const T*>(from));
  });
}

template <typename T>
void Walk::CopyTyped(T* to, const T* from) const {
  CopyAxes(0, to + to_offset_, from + from_offset_);
}

template <typename T>
void Walk::CopyAxes(size_t axis, T* to, const T* from) const {
  const size_t left = axes_.size() - axis;
  if (left == 1) return CopyLast(to, from);
  if (left == 2 && axes_.back().from != 1 && axes_[axis].from == 1) return CopyPair(axis, to, from);
  for (int64_t i = 0; i < axes_[axis].extent; ++i) {
    CopyAxes(axis + 1, to + i * axes_[axis].to, from + i * axes_[axis].from);
  }
}

template <typename T>
void Walk::CopyLast(T* to, const T* from) const {
  const Axis& axis = axes_.back();
  if (axis.to == 1 && axis.from == 1) {
    std::memcpy(to, from, static_cast<size_t>(axis.extent) * sizeof(T));
  } else if (axis.to == 1 && axis.from == 0) {
    std::fill_n(to, axis.extent, *from);
  } else {
    for (int64_t i = 0; i < axis.extent; ++i) to[i * axis.to] = from[i * axis.from];
  }
}

// A transpose: in tiles, so that both places stay in the cache.
template <typename T>
void Walk::CopyPair(size_t axis, T* to, const T* from) const {
  constexpr int64_t kTile = 32;
  const Axis& outer = axes_[axis];
  const Axis& inner = axes_.back();
  for (int64_t i = 0; i < outer.extent; i += kTile) {
    const int64_t i_end = std::min(outer.extent, i + kTile);
    for (int64_t j = 0; j < inner.extent; j += kTile) {
      const int64_t j_end = std::min(inner.extent, j + kTile);
      for (int64_t row = i; row < i_end; ++row) {
        for (int64_t column = j; column < j_end; ++column) {
          to[row * outer.to + column * inner.to] = from[row * outer.from + column * inner.from];
        }
      }
    }
  }
}

Shape Permuted(std::span<const int64_t> values, std::span<const int64_t> order) {
  Shape permuted;
  for (const int64_t axis : order) permuted.push_back(values[static_cast<size_t>(axis)]);
  return permuted;
}

Shape PermutedStrides(std::span<const int64_t> shape, std::span<const int64_t> order) {
  return Permuted(RowMajorStrides(shape), order);
}

}  // namespace ringmaster::testing::stablehlo
