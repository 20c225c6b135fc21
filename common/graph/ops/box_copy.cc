#include "common/graph/ops/box_copy.h"

namespace ringmaster::graph {
namespace {

Shape Origin(const Shape& tensor) { return Shape(tensor.size(), 0); }

// Index 0 of the samples, then those of the other axes.
Shape AfterSamples(const std::vector<int64_t>& begin, size_t axes) {
  Shape index = {0};
  index.insert(index.end(), begin.begin(), begin.begin() + static_cast<std::ptrdiff_t>(axes));
  return index;
}

// Walks the parts of a whole along an axis.
template <typename Visit>
void ForEachPart(const std::vector<Shape>& parts, int64_t axis, const Visit& visit) {
  Shape begin = Origin(parts.front());
  for (size_t i = 0; i < parts.size(); ++i) {
    visit(i, parts[i], begin);
    begin[static_cast<size_t>(axis)] += parts[i][static_cast<size_t>(axis)];
  }
}

}  // namespace

BoxCopy::BoxCopy(const Box& from, const Box& to, const Shape& extents) {
  int64_t from_stride = 1, to_stride = 1;
  bool whole = true;  // all inner axes are, in both tensors: rows go on along the next
  for (size_t axis = extents.size(); axis-- > 0;) {
    first_.from += from.begin[axis] * from_stride;
    first_.to += to.begin[axis] * to_stride;
    if (whole) {
      row_ *= extents[axis];
      whole = extents[axis] == from.tensor[axis] && extents[axis] == to.tensor[axis];
    } else if (!outer_.empty() && from_stride == from_strides_.front() * outer_.front() &&
               to_stride == to_strides_.front() * outer_.front()) {
      outer_.front() *= extents[axis];
      rows_ *= extents[axis];
    } else {
      outer_.insert(outer_.begin(), extents[axis]);
      from_strides_.insert(from_strides_.begin(), from_stride);
      to_strides_.insert(to_strides_.begin(), to_stride);
      rows_ *= extents[axis];
    }
    from_stride *= from.tensor[axis];
    to_stride *= to.tensor[axis];
  }
}

BoxCopy::Offsets BoxCopy::At(int64_t row) const {
  Offsets at = first_;
  for (size_t axis = outer_.size(); axis-- > 0; row /= outer_[axis]) {
    at.from += row % outer_[axis] * from_strides_[axis];
    at.to += row % outer_[axis] * to_strides_[axis];
  }
  return at;
}

std::vector<BoxTransfer> TransfersOf(const Graph& graph, const Node& node) {
  std::vector<BoxTransfer> transfers;
  std::vector<Shape> x, y;
  for (ValueId id : node.inputs) x.push_back(graph.value(id).shape);
  for (ValueId id : node.outputs) y.push_back(graph.value(id).shape);
  if (const auto* concat = node.as<Concat>()) {
    ForEachPart(x, concat->axis, [&](size_t i, const Shape& part, const Shape& begin) {
      transfers.push_back({i, 0, BoxCopy({part, Origin(part)}, {y[0], begin}, part)});
    });
  } else if (const auto* split = node.as<Split>()) {
    ForEachPart(y, split->axis, [&](size_t i, const Shape& part, const Shape& begin) {
      transfers.push_back({0, i, BoxCopy({x[0], begin}, {part, Origin(part)}, part)});
    });
  } else if (const auto* slice = node.as<Slice>()) {
    const Shape begin = AfterSamples(slice->begin, x[0].size() - 1);
    transfers.push_back({0, 0, BoxCopy({x[0], begin}, {y[0], Origin(y[0])}, y[0])});
  } else if (const auto* pad = node.as<Pad>()) {
    const Shape begin = AfterSamples(pad->pads, x[0].size() - 1);
    transfers.push_back({0, 0, BoxCopy({x[0], Origin(x[0])}, {y[0], begin}, x[0])});
  }
  return transfers;
}

}  // namespace ringmaster::graph
