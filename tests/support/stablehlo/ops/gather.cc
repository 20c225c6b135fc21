// gather and scatter: slices at places that an operand names.
#include <algorithm>

#include "tests/support/stablehlo/ops/fold_region.h"
#include "tests/support/stablehlo/ops/op_table.h"
#include "tests/support/stablehlo/ops/walk.h"

namespace ringmaster::testing::stablehlo {
namespace {

// Where a tensor of indices has its vectors.
struct Vectors {
  Type type = Type::kInt32;
  Shape strides;              // of the tensor
  std::vector<size_t> batch;  // its axes but the vector's
  Shape extents;              // along those
  int64_t step = 0;           // elements from one index of a vector to the next
  Axes map;                   // index i is along operand axis map[i]
  size_t rank = 0;            // of the operand

  // The vector of one batch position, as a place in the operand.
  [[nodiscard]] Shape At(const Tensor& indices, const Shape& position) const {
    int64_t offset = 0;
    for (size_t i = 0; i < batch.size(); ++i) offset += position[i] * strides[batch[i]];
    Shape place(rank, 0);
    for (size_t i = 0; i < map.size(); ++i) {
      place[static_cast<size_t>(map[i])] = Dispatch(type, [&](auto zero) -> int64_t {
        const auto at = offset + static_cast<int64_t>(i) * step;
        return static_cast<int64_t>(indices.data<decltype(zero)>()[at]);
      });
    }
    return place;
  }
};

StatusOr<Vectors> PlanVectors(const Operation& op, const TensorType& indices, int64_t vector_axis,
                              const Axes& map, size_t rank) {
  const auto own_rank = static_cast<int64_t>(indices.shape.size());
  if (!IsInteger(indices.type)) return op.Fail("indices of {}", Name(indices.type));
  if (vector_axis < 0 || vector_axis > own_rank) {
    return op.Fail("index_vector_dim {} of {}", vector_axis, Text(indices));
  }
  const bool scalar = vector_axis == own_rank;  // vectors of one, which have no axis
  const int64_t length = scalar ? 1 : indices.shape[static_cast<size_t>(vector_axis)];
  if (static_cast<int64_t>(map.size()) != length) {
    return op.Fail("vectors of {} indices for {} axes", length, map.size());
  }
  RING_RETURN_IF_ERROR(op.CheckAxes("axes of indices", map, rank));
  Vectors vectors;
  vectors.type = indices.type;
  vectors.strides = RowMajorStrides(indices.shape);
  vectors.map = map;
  vectors.rank = rank;
  vectors.step = scalar ? 0 : vectors.strides[static_cast<size_t>(vector_axis)];
  for (int64_t axis = 0; axis < own_rank; ++axis) {
    if (axis == vector_axis) continue;
    vectors.batch.push_back(static_cast<size_t>(axis));
    vectors.extents.push_back(indices.shape[static_cast<size_t>(axis)]);
  }
  return vectors;
}

// body(position) in row-major order.
template <typename Body>
void ForPositions(const Shape& extents, const Body& body) {
  const int64_t count = Elements(extents);
  Shape position(extents.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    body(position);
    size_t axis = extents.size();
    while (axis > 0 && ++position[axis - 1] == extents[axis - 1]) position[--axis] = 0;
  }
}

int64_t Offset(const Shape& position, const Shape& strides) {
  int64_t offset = 0;
  for (size_t i = 0; i < position.size(); ++i) offset += position[i] * strides[i];
  return offset;
}

// The axes below `rank` that are not in `taken`.
Axes Others(size_t rank, const Axes& taken) {
  Axes others;
  for (int64_t axis = 0; axis < static_cast<int64_t>(rank); ++axis) {
    if (std::ranges::count(taken, axis) == 0) others.push_back(axis);
  }
  return others;
}

template <typename Function>
Kernel ScatterKernel(const Vectors& vectors, const TensorType& operand, const Shape& updates,
                     const Axes& window_axes, const Axes& inserted, Function function) {
  const Axes scatter_axes = Others(updates.size(), window_axes);
  const Axes operand_axes = Others(operand.shape.size(), inserted);
  const Shape batch_strides = PermutedStrides(updates, scatter_axes);
  const Shape window = Permuted(updates, window_axes);
  const Shape window_strides = PermutedStrides(updates, window_axes);
  const Shape strides = RowMajorStrides(operand.shape);
  return Kernel([=](Inputs inputs, Outputs outputs) {
    std::vector<float> to = Widened<float>(*inputs[0]);
    const std::vector<float> update = Widened<float>(*inputs[2]);
    ForPositions(vectors.extents, [&](const Shape& batch) {
      const Shape start = vectors.At(*inputs[1], batch);
      const float* from = update.data() + Offset(batch, batch_strides);
      ForPositions(window, [&](const Shape& within) {
        Shape place = start;
        for (size_t i = 0; i < within.size(); ++i) {
          place[static_cast<size_t>(operand_axes[i])] += within[i];
        }
        for (size_t axis = 0; axis < place.size(); ++axis) {  // beside the operand: left out
          if (place[axis] < 0 || place[axis] >= operand.shape[axis]) return;
        }
        float& element = to[static_cast<size_t>(Offset(place, strides))];
        element = function(element, from[Offset(within, window_strides)]);
      });
    });
    Narrow(to.data(), &outputs[0]);
  });
}

}  // namespace

// Slices of slice_sizes; starts are moved so that all of a slice lies within.
StatusOr<Kernel> Gather(const Operation& op) {
  RING_RETURN_IF_ERROR(op.Expect(2, 1));
  RING_RETURN_IF_ERROR(op.Ignore<BoolAttribute>("indices_are_sorted"));
  RING_ASSIGN_OR_RETURN(Numbers numbers, Numbers::Of(op, "dimension_numbers", "stablehlo.gather"));
  const Axes offset_axes = numbers.List("offset_dims");
  const Axes collapsed = numbers.List("collapsed_slice_dims");
  const Axes map = numbers.List("start_index_map");
  RING_ASSIGN_OR_RETURN(const int64_t vector_axis, numbers.One(op, "index_vector_dim"));
  RING_RETURN_IF_ERROR(numbers.CheckAllRead(op));
  const TensorType& operand = op.operand(0);
  const size_t rank = operand.shape.size();
  RING_ASSIGN_OR_RETURN(const Vectors vectors,
                        PlanVectors(op, op.operand(1), vector_axis, map, rank));
  RING_ASSIGN_OR_RETURN(const Shape sizes, op.Array("slice_sizes", rank));
  RING_RETURN_IF_ERROR(op.CheckAxes("collapsed_slice_dims", collapsed, rank));
  const size_t result_rank = vectors.batch.size() + rank - collapsed.size();
  RING_RETURN_IF_ERROR(op.CheckAxes("offset_dims", offset_axes, result_rank));
  if (offset_axes.size() != rank - collapsed.size() || !std::ranges::is_sorted(offset_axes)) {
    return op.Fail("{} offset_dims, expected {} in order", offset_axes.size(),
                   rank - collapsed.size());
  }
  for (size_t axis = 0; axis < rank; ++axis) {
    const bool gone = std::ranges::count(collapsed, static_cast<int64_t>(axis)) > 0;
    if (sizes[axis] < 0 || sizes[axis] > operand.shape[axis] || (gone && sizes[axis] != 1)) {
      return op.Fail("slice_sizes: {} along axis {} of {}", sizes[axis], axis, Text(operand));
    }
  }
  const Axes kept = Others(rank, collapsed);
  const Axes batch_axes = Others(result_rank, offset_axes);
  TensorType inferred{operand.type, Shape(result_rank)};
  for (size_t i = 0; i < kept.size(); ++i) {
    inferred.shape[static_cast<size_t>(offset_axes[i])] = sizes[static_cast<size_t>(kept[i])];
  }
  for (size_t i = 0; i < batch_axes.size(); ++i) {
    inferred.shape[static_cast<size_t>(batch_axes[i])] = vectors.extents[i];
  }
  RING_RETURN_IF_ERROR(op.ExpectResult(inferred));
  const Shape strides = RowMajorStrides(operand.shape);
  const Walk walk({Permuted(sizes, kept), PermutedStrides(inferred.shape, offset_axes),
                   Permuted(strides, kept), 0, 0});
  const Shape batch_strides = PermutedStrides(inferred.shape, batch_axes);
  return Kernel(
      [=, shape = operand.shape, bytes = Size(operand.type)](Inputs inputs, Outputs outputs) {
        ForPositions(vectors.extents, [&](const Shape& batch) {
          Shape start = vectors.At(*inputs[1], batch);
          for (size_t axis = 0; axis < start.size(); ++axis) {
            start[axis] = std::clamp<int64_t>(start[axis], 0, shape[axis] - sizes[axis]);
          }
          const auto to = static_cast<size_t>(Offset(batch, batch_strides)) * bytes;
          const auto from = static_cast<size_t>(Offset(start, strides)) * bytes;
          walk.Copy(bytes, outputs[0].bytes.data() + to, inputs[0]->bytes.data() + from);
        });
      });
}

// Updates in the order in which they lie; what would land beside the operand is left out.
StatusOr<Kernel> Scatter(const Operation& op) {
  RING_RETURN_IF_ERROR(op.Expect(3, 1, 1));
  RING_RETURN_IF_ERROR(op.Ignore<BoolAttribute>("indices_are_sorted"));
  RING_RETURN_IF_ERROR(op.Ignore<BoolAttribute>("unique_indices"));
  RING_ASSIGN_OR_RETURN(Numbers numbers,
                        Numbers::Of(op, "scatter_dimension_numbers", "stablehlo.scatter"));
  const Axes window_axes = numbers.List("update_window_dims");
  const Axes inserted = numbers.List("inserted_window_dims");
  const Axes map = numbers.List("scatter_dims_to_operand_dims");
  RING_ASSIGN_OR_RETURN(const int64_t vector_axis, numbers.One(op, "index_vector_dim"));
  RING_RETURN_IF_ERROR(numbers.CheckAllRead(op));
  const TensorType& operand = op.operand(0);
  const TensorType& updates = op.operand(2);
  const size_t rank = operand.shape.size();
  RING_ASSIGN_OR_RETURN(const Vectors vectors,
                        PlanVectors(op, op.operand(1), vector_axis, map, rank));
  RING_RETURN_IF_ERROR(op.CheckAxes("inserted_window_dims", inserted, rank));
  RING_RETURN_IF_ERROR(op.CheckAxes("update_window_dims", window_axes, updates.shape.size()));
  if (window_axes.size() + inserted.size() != rank || !std::ranges::is_sorted(window_axes) ||
      Permuted(updates.shape, Others(updates.shape.size(), window_axes)) != vectors.extents) {
    return op.Fail("updates {} do not fit {} at indices {}", Text(updates), Text(operand),
                   Text(op.operand(1)));
  }
  const Shape window = Permuted(updates.shape, window_axes);
  const Shape room = Permuted(operand.shape, Others(rank, inserted));
  for (size_t i = 0; i < window.size(); ++i) {
    if (window[i] > room[i])
      return op.Fail("a window of {} in an extent of {}", window[i], room[i]);
  }
  const TensorType scalar{operand.type, {}};
  RING_RETURN_IF_ERROR(op.ExpectOperand(2, {operand.type, updates.shape}));
  RING_RETURN_IF_ERROR(op.ExpectRegion(0, {scalar, scalar}, {scalar}));
  RING_RETURN_IF_ERROR(op.ExpectResult(operand));
  if (!IsFloat(operand.type)) return op.Fail("only of floats here, got {}", Text(operand));
  return WithRegion(op.region(0), operand.type, [&](auto function) {
    return ScatterKernel(vectors, operand, updates.shape, window_axes, inserted, function);
  });
}

}  // namespace ringmaster::testing::stablehlo
