// Ops that move elements and compute nothing. Each makes one walk of the whole tensor.
#include <algorithm>
#include <numeric>

#include "tests/support/stablehlo/number.h"
#include "tests/support/stablehlo/ops/op_table.h"
#include "tests/support/stablehlo/ops/walk.h"

namespace ringmaster::testing::stablehlo {
namespace {

// Fills the result, dense, from the first operand.
Kernel Read(const Operation& op, Shape from_strides, int64_t from_offset = 0) {
  const TensorType& result = op.result();
  const Walk walk(
      {result.shape, RowMajorStrides(result.shape), std::move(from_strides), 0, from_offset});
  return Kernel([walk, bytes = Size(result.type)](Inputs inputs, Outputs outputs) {
    walk.Copy(bytes, outputs[0].bytes.data(), inputs[0]->bytes.data());
  });
}

}  // namespace

// The place of each element along iota_dimension.
StatusOr<Kernel> Iota(const Operation& op) {
  RING_RETURN_IF_ERROR(op.Expect(0, 1));
  const TensorType& type = op.result();
  RING_ASSIGN_OR_RETURN(const int64_t axis, op.Integer("iota_dimension"));
  RING_RETURN_IF_ERROR(op.CheckAxes("iota_dimension", {axis}, type.shape.size()));
  if (type.type == Type::kPred) return op.Fail("not of i1");
  const auto at = static_cast<size_t>(axis);
  const int64_t extent = type.shape[at];
  const int64_t inner = RowMajorStrides(type.shape)[at];
  return Dispatch(type.type, [&](auto zero) {
    using T = decltype(zero);
    return Kernel([extent, inner](Inputs, Outputs outputs) {
      const auto elements = static_cast<int64_t>(outputs[0].bytes.size() / sizeof(T));
      for (int64_t i = 0; i < elements; ++i) {
        outputs[0].data<T>()[i] = static_cast<T>(static_cast<Arithmetic<T>>(i / inner % extent));
      }
    });
  });
}

// Operand axis i becomes result axis broadcast_dimensions[i]: of the same extent, or 1.
StatusOr<Kernel> BroadcastInDim(const Operation& op) {
  RING_RETURN_IF_ERROR(op.Expect(1, 1));
  const Shape& from = op.operand(0).shape;
  const Shape& to = op.result().shape;
  RING_ASSIGN_OR_RETURN(const Axes axes, op.Axes("broadcast_dimensions", to.size()));
  if (axes.size() != from.size()) {
    return op.Fail("{} broadcast_dimensions of an operand of rank {}", axes.size(), from.size());
  }
  RING_RETURN_IF_ERROR(op.ExpectResult({op.operand(0).type, to}));
  const Shape own = RowMajorStrides(from);
  Shape strides(to.size(), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<size_t>(axes[i]);
    if (from[i] != to[axis] && from[i] != 1) {
      return op.Fail("axis {} of {} does not become axis {} of {}", i, Text(op.operand(0)), axis,
                     Text(op.result()));
    }
    strides[axis] = from[i] == 1 ? 0 : own[i];
  }
  return Read(op, std::move(strides));
}

StatusOr<Kernel> Reshape(const Operation& op) {
  RING_RETURN_IF_ERROR(op.Expect(1, 1));
  RING_RETURN_IF_ERROR(op.ExpectResult({op.operand(0).type, op.result().shape}));
  if (Elements(op.operand(0).shape) != Elements(op.result().shape)) {
    return op.Fail("{} has not as many elements as {}", Text(op.operand(0)), Text(op.result()));
  }
  const auto run = [](Inputs inputs, Outputs outputs) {
    if (inputs[0]->bytes.data() != outputs[0].bytes.data()) outputs[0].bytes = inputs[0]->bytes;
  };
  return Kernel(run, /*in_place=*/true);
}

StatusOr<Kernel> Transpose(const Operation& op) {
  RING_RETURN_IF_ERROR(op.Expect(1, 1));
  const Shape& shape = op.operand(0).shape;
  RING_ASSIGN_OR_RETURN(const Axes order, op.Axes("permutation", shape.size()));
  if (order.size() != shape.size()) return op.Fail("permutation leaves axes out");
  RING_RETURN_IF_ERROR(op.ExpectResult({op.operand(0).type, Permuted(shape, order)}));
  return Read(op, PermutedStrides(shape, order));
}

StatusOr<Kernel> Reverse(const Operation& op) {
  RING_RETURN_IF_ERROR(op.Expect(1, 1));
  RING_RETURN_IF_ERROR(op.ExpectResult(op.operand(0)));
  const Shape& shape = op.operand(0).shape;
  RING_ASSIGN_OR_RETURN(const Axes axes, op.Axes("dimensions", shape.size()));
  Shape strides = RowMajorStrides(shape);
  int64_t offset = 0;
  for (const int64_t axis : axes) {
    int64_t& stride = strides[static_cast<size_t>(axis)];
    offset += (shape[static_cast<size_t>(axis)] - 1) * stride;
    stride = -stride;
  }
  return Read(op, std::move(strides), offset);
}

StatusOr<Kernel> Slice(const Operation& op) {
  RING_RETURN_IF_ERROR(op.Expect(1, 1));
  const Shape& shape = op.operand(0).shape;
  RING_ASSIGN_OR_RETURN(const Shape starts, op.Array("start_indices", shape.size()));
  RING_ASSIGN_OR_RETURN(const Shape limits, op.Array("limit_indices", shape.size()));
  RING_ASSIGN_OR_RETURN(const Shape steps, op.Array("strides", shape.size()));
  Shape strides = RowMajorStrides(shape);
  Shape sliced;
  int64_t offset = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (starts[axis] < 0 || limits[axis] < starts[axis] || limits[axis] > shape[axis] ||
        steps[axis] < 1) {
      return op.Fail("axis {}: from {} to {} by {} of an extent of {}", axis, starts[axis],
                     limits[axis], steps[axis], shape[axis]);
    }
    sliced.push_back((limits[axis] - starts[axis] + steps[axis] - 1) / steps[axis]);
    offset += starts[axis] * strides[axis];
    strides[axis] *= steps[axis];
  }
  RING_RETURN_IF_ERROR(op.ExpectResult({op.operand(0).type, sliced}));
  return Read(op, std::move(strides), offset);
}

StatusOr<Kernel> Concatenate(const Operation& op) {
  if (op.operands() == 0) return op.Fail("no operands");
  RING_RETURN_IF_ERROR(op.Expect(op.operands(), 1));
  RING_ASSIGN_OR_RETURN(const int64_t axis, op.Integer("dimension"));
  TensorType all = op.operand(0);
  RING_RETURN_IF_ERROR(op.CheckAxes("dimension", {axis}, all.shape.size()));
  int64_t& extent = all.shape[static_cast<size_t>(axis)];
  extent = 0;
  for (size_t i = 0; i < op.operands(); ++i) {
    TensorType expected = op.operand(0);
    if (op.operand(i).shape.size() == expected.shape.size()) {
      expected.shape[static_cast<size_t>(axis)] = op.operand(i).shape[static_cast<size_t>(axis)];
    }
    RING_RETURN_IF_ERROR(op.ExpectOperand(i, expected));
    extent += expected.shape[static_cast<size_t>(axis)];
  }
  RING_RETURN_IF_ERROR(op.ExpectResult(all));
  std::vector<Walk> walks;
  const Shape strides = RowMajorStrides(all.shape);
  int64_t offset = 0;
  for (size_t i = 0; i < op.operands(); ++i) {
    const Shape& shape = op.operand(i).shape;
    walks.emplace_back(Box{shape, strides, RowMajorStrides(shape), offset, 0});
    offset += shape[static_cast<size_t>(axis)] * strides[static_cast<size_t>(axis)];
  }
  return Kernel([walks, bytes = Size(all.type)](Inputs inputs, Outputs outputs) {
    for (size_t i = 0; i < walks.size(); ++i) {
      walks[i].Copy(bytes, outputs[0].bytes.data(), inputs[i]->bytes.data());
    }
  });
}

// Negative edges cut off; interior_padding values between any two elements.
StatusOr<Kernel> Pad(const Operation& op) {
  RING_RETURN_IF_ERROR(op.Expect(2, 1));
  const TensorType type = op.operand(0);
  RING_RETURN_IF_ERROR(op.ExpectOperand(1, {type.type, {}}));
  const size_t rank = type.shape.size();
  RING_ASSIGN_OR_RETURN(const Shape low, op.Array("edge_padding_low", rank));
  RING_ASSIGN_OR_RETURN(const Shape high, op.Array("edge_padding_high", rank));
  RING_ASSIGN_OR_RETURN(const Shape interior, op.Array("interior_padding", rank));
  TensorType padded = type;
  for (size_t axis = 0; axis < rank; ++axis) {
    const int64_t inner = std::max<int64_t>(type.shape[axis] - 1, 0) * interior[axis];
    padded.shape[axis] += low[axis] + high[axis] + inner;
    if (interior[axis] < 0 || padded.shape[axis] < 0) {
      return op.Fail("axis {}: {} elements padded by {}, {} and {} between them", axis,
                     type.shape[axis], low[axis], high[axis], interior[axis]);
    }
  }
  RING_RETURN_IF_ERROR(op.ExpectResult(padded));
  // Along each axis the elements from `first` on for which the result has a place.
  Box box{{}, RowMajorStrides(padded.shape), RowMajorStrides(type.shape), 0, 0};
  for (size_t axis = 0; axis < rank; ++axis) {
    const int64_t step = interior[axis] + 1;
    const int64_t first = low[axis] < 0 ? (-low[axis] + step - 1) / step : 0;
    const int64_t room = padded.shape[axis] - low[axis];  // places from the first element's on
    const int64_t end = room <= 0 ? 0 : std::min(type.shape[axis], (room - 1) / step + 1);
    box.extents.push_back(std::max<int64_t>(end - first, 0));
    box.from_offset += first * box.from_strides[axis];
    box.to_offset += (low[axis] + first * step) * box.to_strides[axis];
    box.to_strides[axis] *= step;
  }
  const Walk walk(box);
  return DispatchSize(Size(type.type), [&](auto zero) {
    using T = decltype(zero);
    return Kernel([walk](Inputs inputs, Outputs outputs) {
      std::fill_n(outputs[0].data<T>(), outputs[0].bytes.size() / sizeof(T), *inputs[1]->data<T>());
      walk.Copy(sizeof(T), outputs[0].bytes.data(), inputs[0]->bytes.data());
    });
  });
}

}  // namespace ringmaster::testing::stablehlo
