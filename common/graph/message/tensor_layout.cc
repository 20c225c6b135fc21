#include "common/graph/message/tensor_layout.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace ringmaster::graph {
namespace {

// What the roles are called elsewhere; those that are not here keep their names.
struct Role {
  const char* ours;
  const char* pytorch;
  const char* keras;
};
constexpr std::array<Role, 6> kRoles = {{{"kernel", "weight", "kernel"},
                                         {"gamma", "weight", "gamma"},
                                         {"beta", "bias", "beta"},
                                         {"moving_mean", "running_mean", "moving_mean"},
                                         {"moving_variance", "running_var", "moving_variance"},
                                         {"table", "weight", "embeddings"}}};

bool IsKernel(const std::string& name) {
  const std::string role = name.substr(name.rfind('/') + 1);
  return role == "kernel" || role.ends_with("_kernel");
}

// Calls visit(place there, place here) for every element.
template <typename Visit>
void ForEachElement(const AxisOrder& order, Visit visit) {
  const size_t rank = order.axes.size();
  std::vector<size_t> strides(rank, 1);  // ours
  for (size_t axis = rank; axis-- > 1;) {
    strides[axis - 1] = strides[axis] * static_cast<size_t>(order.extents[axis]);
  }
  const size_t elements = ElementsOf(order);
  std::vector<int64_t> at(rank, 0);  // by axis there
  size_t here = 0;
  for (size_t there = 0; there < elements; ++there) {
    visit(there, here);
    for (size_t i = rank; i-- > 0;) {
      here += strides[order.axes[i]];
      if (++at[i] < order.extents[order.axes[i]]) break;
      here -= strides[order.axes[i]] * static_cast<size_t>(at[i]);
      at[i] = 0;
    }
  }
}

}  // namespace

size_t ElementsOf(const AxisOrder& order) {
  return static_cast<size_t>(std::accumulate(order.extents.begin(), order.extents.end(), int64_t{1},
                                             std::multiplies<int64_t>()));
}

std::string NameIn(v1::TensorLayout layout, const std::string& name) {
  const bool pytorch = layout == v1::TENSOR_LAYOUT_PYTORCH;
  if (!pytorch && layout != v1::TENSOR_LAYOUT_KERAS) return name;
  const size_t at = name.rfind('/') + 1;
  std::string theirs = name;
  const auto* const role = std::ranges::find_if(kRoles, [&](const Role& known) {
    return name.compare(at, std::string::npos, known.ours) == 0;
  });
  if (role != kRoles.end())
    theirs.replace(at, std::string::npos, pytorch ? role->pytorch : role->keras);
  if (pytorch) std::ranges::replace(theirs, '/', '.');
  return theirs;
}

bool AxisOrder::same() const { return std::ranges::is_sorted(axes); }

AxisOrder AxisOrder::Of(v1::TensorLayout layout, const std::string& name,
                        const std::vector<int64_t>& shape, const std::vector<int64_t>& image) {
  AxisOrder order = {shape, std::vector<size_t>(shape.size())};
  std::iota(order.axes.begin(), order.axes.end(), 0);
  if (layout == v1::TENSOR_LAYOUT_PYTORCH && shape.size() == 1 && image.size() == 3) {
    return {image, {2, 0, 1}};
  }
  if (!IsKernel(name)) return order;
  if (layout == v1::TENSOR_LAYOUT_PYTORCH) {
    if (shape.size() == 4) order.axes = {0, 3, 1, 2};
    if (shape.size() == 2) order.axes = {1, 0};
    if (shape.size() == 2 && image.size() == 3) {
      order.extents = {image[0], image[1], image[2], shape[1]};
      order.axes = {3, 2, 0, 1};
    }
  }
  if (layout == v1::TENSOR_LAYOUT_KERAS && shape.size() == 4) order.axes = {1, 2, 3, 0};
  return order;
}

std::vector<int64_t> ShapeIn(const AxisOrder& order, const std::vector<int64_t>& shape) {
  if (order.extents.size() != shape.size()) return {shape.rbegin(), shape.rend()};
  std::vector<int64_t> theirs;
  for (const size_t axis : order.axes) theirs.push_back(order.extents[axis]);
  return theirs;
}

void FromLayout(const AxisOrder& order, std::span<const float> theirs, std::span<float> ours) {
  if (order.same()) {
    std::ranges::copy(theirs, ours.begin());
    return;
  }
  ForEachElement(order, [&](size_t there, size_t here) { ours[here] = theirs[there]; });
}

void ToLayout(const AxisOrder& order, std::span<const float> ours, std::span<float> theirs) {
  if (order.same()) {
    std::ranges::copy(ours, theirs.begin());
    return;
  }
  ForEachElement(order, [&](size_t there, size_t here) { theirs[there] = ours[here]; });
}

}  // namespace ringmaster::graph
