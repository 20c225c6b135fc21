#include "common/graph/ops/broadcast.h"

#include <algorithm>
#include <utility>

#include "common/graph/ops/operands.h"

namespace ringmaster::graph {
namespace {

// `shape` with leading extents of 1.
Shape ToRank(const Shape& shape, size_t rank) {
  Shape longer(rank - shape.size(), 1);
  longer.insert(longer.end(), shape.begin(), shape.end());
  return longer;
}

// Elements that a step along each axis moves in a tensor of that shape; 0 along extents of 1.
Shape StridesOf(const Shape& shape) {
  Shape strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0; stride *= shape[i]) {
    strides[i] = shape[i] == 1 ? 0 : stride;
  }
  return strides;
}

// Whether a step of the outer axis is as far as all steps of the inner one.
bool Continues(const BroadcastAxis& outer, const BroadcastAxis& inner) {
  return outer.strides[0] == inner.strides[0] * inner.extent &&
         outer.strides[1] == inner.strides[1] * inner.extent;
}

}  // namespace

StatusOr<Shape> BroadcastShape(const Shape& a, const Shape& b) {
  const auto misfit = [&] {
    return InvalidArgument(
        "{} and {} do not fit: of equal ranks only extents of 1 after axis 0 "
        "broadcast, and a lower rank meets the last axes",
        ToString(a), ToString(b));
  };
  const size_t rank = std::max(a.size(), b.size());
  const Shape left = ToRank(a, rank), right = ToRank(b, rank);
  Shape shape(rank);
  for (size_t i = 0; i < rank; ++i) {
    if (left[i] != right[i] && left[i] != 1 && right[i] != 1) return misfit();
    shape[i] = left[i] == 1 ? right[i] : left[i];
  }
  if (a.size() == b.size() && a != b && a[0] != b[0]) return misfit();
  if (a.size() < rank && shape != b) return misfit();
  if (b.size() < rank && shape != a) return misfit();
  return shape;
}

StatusOr<OpOutputs> BroadcastTypes(OpInputs inputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 2, 2));
  RING_RETURN_IF_ERROR(ExpectFloating("a", inputs[0]));
  RING_RETURN_IF_ERROR(ExpectType("b", inputs[1], inputs[0].dtype));
  RING_ASSIGN_OR_RETURN(Shape shape, BroadcastShape(inputs[0].shape, inputs[1].shape));
  return OpOutputs{{std::move(shape), inputs[0].dtype}};
}

StatusOr<ValueId> ReducedTo(const GradientRequest& request, size_t i, ValueId gradient) {
  const Graph& graph = *request.graph;
  const Shape wanted = graph.value(request.node.inputs[i]).shape;
  if (wanted == graph.value(gradient).shape) return gradient;
  Node node = {request.node.name + (i == 0 ? "/reduce_a" : "/reduce_b"), ReduceTo{}, {gradient}};
  RING_ASSIGN_OR_RETURN(const auto made, AddOp(request.graph, std::move(node), {{wanted}}));
  return made[0];
}

BroadcastAxes::BroadcastAxes(const Shape& a, const Shape& b) {
  const size_t rank = std::max(a.size(), b.size());
  const Shape left = ToRank(a, rank), right = ToRank(b, rank);
  const Shape left_strides = StridesOf(left), right_strides = StridesOf(right);
  for (size_t i = 0; i < rank; ++i) {
    const BroadcastAxis axis = {std::max(left[i], right[i]), {left_strides[i], right_strides[i]}};
    if (axis.extent == 1) continue;
    if (!axes_.empty() && Continues(axes_.back(), axis)) {
      axes_.back() = {axes_.back().extent * axis.extent, axis.strides};
    } else {
      axes_.push_back(axis);
    }
  }
  if (axes_.empty()) axes_.push_back({1, {1, 1}});
}

int64_t BroadcastAxes::count() const {
  int64_t count = 1;
  for (const BroadcastAxis& axis : axes_) count *= axis.extent;
  return count;
}

std::array<int64_t, 2> BroadcastAxes::At(int64_t i) const {
  std::array<int64_t, 2> at = {0, 0};
  for (size_t axis = axes_.size(); axis-- > 0; i /= axes_[axis].extent) {
    const int64_t step = i % axes_[axis].extent;
    at[0] += step * axes_[axis].strides[0];
    at[1] += step * axes_[axis].strides[1];
  }
  return at;
}

Status Add::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_ASSIGN_OR_RETURN(*outputs, BroadcastTypes(inputs));
  return absl::OkStatus();
}

Gradients Add::Gradient(const GradientRequest& request) {
  std::vector<ValueId> gradients(2, kNoValue);
  for (size_t i = 0; i < 2; ++i) {
    if (!request.wanted[i]) continue;
    RING_ASSIGN_OR_RETURN(gradients[i], ReducedTo(request, i, request.output_gradients[0]));
  }
  return gradients;
}

void Add::Reference(const ReferenceCall& call) {
  const BroadcastAxes axes(call.input_shape(0), call.input_shape(1));
  for (size_t i = 0; i < call.outputs[0].size(); ++i) {
    const auto [a, b] = axes.At(static_cast<int64_t>(i));
    call.outputs[0][i] =
        call.inputs[0][static_cast<size_t>(a)] + call.inputs[1][static_cast<size_t>(b)];
  }
}

Status Multiply::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_ASSIGN_OR_RETURN(*outputs, BroadcastTypes(inputs));
  return absl::OkStatus();
}

// da = dy b and db = dy a, each summed over what it was broadcast along.
Gradients Multiply::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  std::vector<ValueId> gradients(2, kNoValue);
  for (size_t i = 0; i < 2; ++i) {
    if (!request.wanted[i]) continue;
    RING_ASSIGN_OR_RETURN(
        const auto product,
        AddOp(request.graph, {node.name + (i == 0 ? "/a_gradient" : "/b_gradient"),
                              Multiply{},
                              {request.output_gradients[0], node.inputs[1 - i]}}));
    RING_ASSIGN_OR_RETURN(gradients[i], ReducedTo(request, i, product[0]));
  }
  return gradients;
}

void Multiply::Reference(const ReferenceCall& call) {
  const BroadcastAxes axes(call.input_shape(0), call.input_shape(1));
  for (size_t i = 0; i < call.outputs[0].size(); ++i) {
    const auto [a, b] = axes.At(static_cast<int64_t>(i));
    call.outputs[0][i] =
        call.inputs[0][static_cast<size_t>(a)] * call.inputs[1][static_cast<size_t>(b)];
  }
}

Status ReduceTo::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_RETURN_IF_ERROR(ExpectFloating("x", inputs[0]));
  RING_ASSIGN_OR_RETURN(const Shape wanted, WantedShape(*outputs));
  const auto together = BroadcastShape(inputs[0].shape, wanted);
  if (!together.ok() || *together != inputs[0].shape) {
    return InvalidArgument("{} is not what {} could be broadcast to", ToString(inputs[0].shape),
                           ToString(wanted));
  }
  const bool parameter = wanted.size() < inputs[0].shape.size();
  *outputs = {{wanted, parameter ? DType::kFloat32 : inputs[0].dtype}};
  return absl::OkStatus();
}

void ReduceTo::Reference(const ReferenceCall& call) {
  const BroadcastAxes axes(call.input_shape(0), call.output_shape(0));
  for (size_t i = 0; i < call.inputs[0].size(); ++i) {
    call.outputs[0][static_cast<size_t>(axes.At(static_cast<int64_t>(i))[1])] += call.inputs[0][i];
  }
}

}  // namespace ringmaster::graph
