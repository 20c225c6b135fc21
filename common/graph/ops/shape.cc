#include "common/graph/ops/shape.h"

#include <algorithm>
#include <numeric>

#include "common/graph/ops/operands.h"

namespace ringmaster::graph {
namespace {

Status CheckAxis(int64_t axis, const Shape& shape) {
  if (axis >= 1 && axis < static_cast<int64_t>(shape.size())) return absl::OkStatus();
  return InvalidArgument("axis {} of {}: expected one behind the samples', 1 to {}", axis,
                         ToString(shape), static_cast<int64_t>(shape.size()) - 1);
}

// `numbers` are as many as x has axes behind the samples', times `each`.
Status CheckAxes(const char* what, const std::vector<int64_t>& numbers, size_t each,
                 const Shape& x) {
  if (x.empty()) return InvalidArgument("expected x with samples, got a scalar");
  if (numbers.size() == each * (x.size() - 1)) return absl::OkStatus();
  return InvalidArgument("expected {} of {} numbers for {}, got {}", what, each * (x.size() - 1),
                         ToString(x), numbers.size());
}

void CopyBoxes(const ReferenceCall& call) {
  for (const BoxTransfer& transfer : TransfersOf(call.graph, call.node)) {
    const double* x = call.inputs[transfer.input].data();
    double* y = call.outputs[transfer.output].data();
    for (int64_t row = 0; row < transfer.copy.rows(); ++row) {
      const auto [from, to] = transfer.copy.At(row);
      std::copy_n(x + from, transfer.copy.row(), y + to);
    }
  }
}

// The gradient of a whole of that shape from that of the part which begins at index `begin` of the
// axis: zeros round it.
StatusOr<ValueId> PadPart(Graph* graph, const std::string& name, const Shape& whole, int64_t axis,
                          int64_t begin, ValueId part) {
  Pad pad = {std::vector<int64_t>(2 * (whole.size() - 1), 0)};
  const int64_t extent = graph->value(part).shape[static_cast<size_t>(axis)];
  pad.pads[static_cast<size_t>(axis) - 1] = begin;
  pad.pads[whole.size() - 1 + static_cast<size_t>(axis) - 1] =
      whole[static_cast<size_t>(axis)] - begin - extent;
  RING_ASSIGN_OR_RETURN(const auto made, AddOp(graph, {name, std::move(pad), {part}}));
  return made[0];
}

}  // namespace

Status Concat::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  if (inputs.size() < 2) {
    return InvalidArgument("expected at least 2 inputs, got {}", inputs.size());
  }
  RING_RETURN_IF_ERROR(CheckAxis(node.as<Concat>()->axis, inputs[0].shape));
  const auto axis = static_cast<size_t>(node.as<Concat>()->axis);
  Shape whole = inputs[0].shape;
  for (const TensorType& part : inputs.subspan(1)) {
    RING_RETURN_IF_ERROR(ExpectType("all operands", part, inputs[0].dtype));
    RING_RETURN_IF_ERROR(ExpectRank("all operands", part, whole.size()));
    Shape expected = inputs[0].shape;
    expected[axis] = part.shape[axis];
    RING_RETURN_IF_ERROR(ExpectShape("an operand", part, expected));
    whole[axis] += part.shape[axis];
  }
  *outputs = {{whole, inputs[0].dtype}};
  return absl::OkStatus();
}

Status Split::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  const Split& split = *node.as<Split>();
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_RETURN_IF_ERROR(CheckAxis(split.axis, inputs[0].shape));
  const auto axis = static_cast<size_t>(split.axis);
  const int64_t sum = std::accumulate(split.sizes.begin(), split.sizes.end(), int64_t{0});
  const bool positive =
      std::all_of(split.sizes.begin(), split.sizes.end(), [](int64_t size) { return size > 0; });
  if (!positive || sum != inputs[0].shape[axis]) {
    return InvalidArgument("expected sizes above 0 with a sum of {}, got {} in sum",
                           inputs[0].shape[axis], sum);
  }
  outputs->clear();
  for (int64_t size : split.sizes) {
    outputs->push_back({inputs[0].shape, inputs[0].dtype, std::to_string(outputs->size())});
    outputs->back().shape[axis] = size;
  }
  return absl::OkStatus();
}

Status Slice::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  const Slice& slice = *node.as<Slice>();
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_RETURN_IF_ERROR(CheckAxes("begin", slice.begin, 1, inputs[0].shape));
  RING_RETURN_IF_ERROR(CheckAxes("end", slice.end, 1, inputs[0].shape));
  Shape shape = inputs[0].shape;
  for (size_t axis = 1; axis < shape.size(); ++axis) {
    const int64_t begin = slice.begin[axis - 1], end = slice.end[axis - 1];
    if (begin < 0 || begin >= end || end > shape[axis]) {
      return InvalidArgument("axis {}: expected 0 <= begin < end <= {}, got {} and {}", axis,
                             shape[axis], begin, end);
    }
    shape[axis] = end - begin;
  }
  *outputs = {{shape, inputs[0].dtype}};
  return absl::OkStatus();
}

Status Pad::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  const std::vector<int64_t>& pads = node.as<Pad>()->pads;
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_RETURN_IF_ERROR(CheckAxes("pads", pads, 2, inputs[0].shape));
  Shape shape = inputs[0].shape;
  for (size_t i = 0; i < pads.size(); ++i) {
    if (pads[i] < 0) return InvalidArgument("expected pads of at least 0, got {}", pads[i]);
    shape[1 + i % (shape.size() - 1)] += pads[i];
  }
  *outputs = {{shape, inputs[0].dtype}};
  return absl::OkStatus();
}

Gradients Concat::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  Split split = {node.as<Concat>()->axis, {}};
  for (ValueId input : node.inputs) {
    const Shape& shape = request.graph->value(input).shape;
    split.sizes.push_back(shape[static_cast<size_t>(split.axis)]);
  }
  return AddOp(request.graph,
               {node.name + "/gradient", std::move(split), {request.output_gradients[0]}});
}

// Side by side where a gradient flows into each output; else the sum of those that flow, each with
// zeros in place of the others.
Gradients Split::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  const Split& split = *node.as<Split>();
  const std::vector<ValueId>& dy = request.output_gradients;
  if (dy.size() > 1 && std::find(dy.begin(), dy.end(), kNoValue) == dy.end()) {
    return AddOp(request.graph, {node.name + "/gradient", Concat{split.axis}, dy});
  }
  const Shape whole = request.graph->value(node.inputs[0]).shape;
  ValueId sum = kNoValue;
  int64_t begin = 0;
  for (size_t i = 0; i < dy.size(); begin += split.sizes[i++]) {
    if (dy[i] == kNoValue) continue;
    RING_ASSIGN_OR_RETURN(ValueId part,
                          PadPart(request.graph, fmt::format("{}/gradient/{}", node.name, i), whole,
                                  split.axis, begin, dy[i]));
    if (sum != kNoValue) {
      RING_ASSIGN_OR_RETURN(
          const auto made,
          AddOp(request.graph,
                {fmt::format("{}/gradient_sum/{}", node.name, i), Add{}, {sum, part}}));
      part = made[0];
    }
    sum = part;
  }
  return std::vector<ValueId>{sum};
}

Gradients Slice::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  const Slice& slice = *node.as<Slice>();
  const Shape& x = request.graph->value(node.inputs[0]).shape;
  Pad pad = {slice.begin};
  for (size_t axis = 1; axis < x.size(); ++axis) pad.pads.push_back(x[axis] - slice.end[axis - 1]);
  return AddOp(request.graph,
               {node.name + "/gradient", std::move(pad), {request.output_gradients[0]}});
}

Gradients Pad::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  const Shape& x = request.graph->value(node.inputs[0]).shape;
  Slice slice;
  for (size_t axis = 1; axis < x.size(); ++axis) {
    slice.begin.push_back(node.as<Pad>()->pads[axis - 1]);
    slice.end.push_back(slice.begin.back() + x[axis]);
  }
  return AddOp(request.graph,
               {node.name + "/gradient", std::move(slice), {request.output_gradients[0]}});
}

void Concat::Reference(const ReferenceCall& call) { CopyBoxes(call); }
void Split::Reference(const ReferenceCall& call) { CopyBoxes(call); }
void Slice::Reference(const ReferenceCall& call) { CopyBoxes(call); }
void Pad::Reference(const ReferenceCall& call) { CopyBoxes(call); }

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

namespace {

Shape ShapeOfModel(const Node& node, const TensorType& x) {
  Shape shape = node.as<Reshape>()->shape;
  shape.insert(shape.begin(), x.shape.empty() ? 1 : x.shape[0]);
  return shape;
}

// INVALID_ARGUMENT when an extent is below 1, or the product of all cannot be counted.
Status CheckExtents(const Shape& shape) {
  int64_t room = int64_t{1} << 62;
  for (const int64_t extent : shape) {
    if (extent < 1 || extent > room) {
      return InvalidArgument("a shape with an extent of {}, below 1 or too large", extent);
    }
    room /= extent;
  }
  return absl::OkStatus();
}

}  // namespace

Status Reshape::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  Shape wanted = ShapeOfModel(node, inputs[0]);
  if (!outputs->empty()) {
    RING_ASSIGN_OR_RETURN(wanted, WantedShape(*outputs));
  }
  RING_RETURN_IF_ERROR(CheckExtents(wanted));
  if (Elements(wanted) != Elements(inputs[0].shape)) {
    return InvalidArgument("{} has {} elements, {} has {}", ToString(inputs[0].shape),
                           Elements(inputs[0].shape), ToString(wanted), Elements(wanted));
  }
  *outputs = {{wanted, inputs[0].dtype}};
  return absl::OkStatus();
}

Gradients Reshape::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  const Shape x = request.graph->value(node.inputs[0]).shape;
  return AddOp(request.graph, {node.name + "/gradient", Reshape{}, {request.output_gradients[0]}},
               {{x}});
}

void Reshape::Reference(const ReferenceCall& call) {
  std::copy(call.inputs[0].begin(), call.inputs[0].end(), call.outputs[0].begin());
}

}  // namespace ringmaster::graph
