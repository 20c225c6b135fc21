#include "common/graph/ops/box.h"

#include <algorithm>
#include <numeric>

#include "common/graph/ops/box_copy.h"
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

}  // namespace ringmaster::graph
