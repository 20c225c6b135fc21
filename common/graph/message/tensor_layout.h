// How other programs call and lay out the tensors of a model: names and axes, from their files to
// ours and back. Pure; thread-safe (free functions).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ringmaster/v1/job.pb.h"

namespace ringmaster::graph {

// stage1/conv/kernel is stage1.conv.weight for PyTorch; Keras' names are ours, but for a table's.
[[nodiscard]] std::string NameIn(v1::TensorLayout layout, const std::string& name);

// How a tensor of ours stands in a layout: `extents` are ours, with a dense kernel's rows, or the
// elements of a vector, taken apart where an image was flattened in front of it; `axes` say which
// of them come first there.
struct AxisOrder {
  std::vector<int64_t> extents;
  std::vector<size_t> axes;

  [[nodiscard]] bool same() const;  // no byte moves
  // Kernels by the last part of their name and their rank. `image`: H, W and C of what was
  // flattened in front of a dense kernel or of a normalization's vector, else empty.
  [[nodiscard]] static AxisOrder Of(v1::TensorLayout layout, const std::string& name,
                                    const std::vector<int64_t>& shape,
                                    const std::vector<int64_t>& image);
};

[[nodiscard]] size_t ElementsOf(const AxisOrder& order);

// The shape there: a flattened image is one extent.
[[nodiscard]] std::vector<int64_t> ShapeIn(const AxisOrder& order,
                                           const std::vector<int64_t>& shape);

// Elements in their order there, to ours; and back. Both have the elements of `order`.
void FromLayout(const AxisOrder& order, std::span<const float> theirs, std::span<float> ours);
void ToLayout(const AxisOrder& order, std::span<const float> ours, std::span<float> theirs);

}  // namespace ringmaster::graph
