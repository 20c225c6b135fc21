// reduce: over some axes, with a region that is one op or anything else.
#include <algorithm>
#include <array>

#include "tests/support/stablehlo/ops/fold_region.h"
#include "tests/support/stablehlo/ops/op_table.h"
#include "tests/support/stablehlo/ops/walk.h"

namespace ringmaster::testing::stablehlo {
namespace {

// Axes of the operand, neighbours of one kind taken as one. `to`: elements between neighbours in
// the result; 0 along what is reduced.
struct Axis {
  int64_t extent, from, to;
};

std::vector<Axis> PlanAxes(const Shape& shape, const Shape& result, const Axes& reduced) {
  const Shape from = RowMajorStrides(shape);
  const Shape kept = RowMajorStrides(result);
  std::vector<Axis> axes;
  size_t next = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool gone = std::ranges::count(reduced, static_cast<int64_t>(i)) > 0;
    const Axis axis{shape[i], from[i], gone ? 0 : kept[next]};
    if (!gone) ++next;
    if (axis.extent == 1) continue;
    if (!axes.empty() && axes.back().to == axis.to * axis.extent && (axes.back().to == 0) == gone) {
      axes.back() = {axes.back().extent * axis.extent, axis.from, axis.to};
    } else {
      axes.push_back(axis);
    }
  }
  if (axes.empty()) axes.push_back({1, 1, 1});
  return axes;
}

// Sums along the last axis in lanes of their own, so that an addition need not wait for the one
// before.
template <typename Sum, typename Wide, typename Function>
Sum FoldLine(Sum sum, const Wide* from, int64_t extent, const Function& function) {
  constexpr int64_t kLanes = 8;
  int64_t i = 0;
  if constexpr (std::is_same_v<Sum, double>) {
    std::array<double, kLanes> lanes{};
    for (; i + kLanes <= extent; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        lanes[static_cast<size_t>(lane)] += from[i + lane];
      }
    }
    for (const double lane : lanes) sum += lane;
  }
  for (; i < extent; ++i) sum = function(sum, static_cast<Sum>(from[i]));
  return sum;
}

template <typename Sum, typename Wide, typename Function>
void FoldAxes(std::span<const Axis> axes, Sum* to, const Wide* from, const Function& function) {
  const Axis& axis = axes[0];
  if (axes.size() > 1) {
    for (int64_t i = 0; i < axis.extent; ++i) {
      FoldAxes(axes.subspan(1), to + i * axis.to, from + i * axis.from, function);
    }
  } else if (axis.to == 0) {
    *to = FoldLine(*to, from, axis.extent, function);
  } else {
    for (int64_t i = 0; i < axis.extent; ++i) to[i] = function(to[i], static_cast<Sum>(from[i]));
  }
}

// Sum is double for sums of floats, which are rounded once, at the end.
template <typename Sum, typename Wide, typename Function>
Kernel FoldKernel(const std::vector<Axis>& axes, Function function) {
  return Kernel([axes, function](Inputs inputs, Outputs outputs) {
    std::vector<Sum> sums(static_cast<size_t>(Elements(outputs[0].shape)),
                          static_cast<Sum>(Widened<Wide>(*inputs[1])[0]));
    const bool wide = inputs[0]->type == Type::kFloat32;  // floats lie there already
    const std::vector<Wide> widened = wide ? std::vector<Wide>() : Widened<Wide>(*inputs[0]);
    const Wide* from = wide ? inputs[0]->data<Wide>() : widened.data();
    if (!inputs[0]->bytes.empty()) FoldAxes(std::span(axes), sums.data(), from, function);
    Narrow(sums.data(), &outputs[0]);
  });
}

// In float, and sums in double.
Kernel FloatFold(Fold fold, const std::vector<Axis>& axes) {
  if (fold == Fold::kAdd) {
    return FoldKernel<double, float>(axes, [](double sum, double next) { return sum + next; });
  }
  return WithFold<float>(fold,
                         [&](auto function) { return FoldKernel<float, float>(axes, function); });
}

// In 64 bits: what wraps around in fewer has the same low ones. i1 is 0 or 1, its sum an or.
Kernel IntegerFold(Fold fold, Type type, const std::vector<Axis>& axes) {
  if (type == Type::kPred) {
    const bool either = fold == Fold::kAdd || fold == Fold::kOr;
    if (fold != Fold::kXor)
      fold = either || fold == Fold::kMaximum ? Fold::kMaximum : Fold::kMinimum;
  }
  return WithFold<int64_t>(
      fold, [&](auto function) { return FoldKernel<int64_t, int64_t>(axes, function); });
}

// Several operands at once, or a region that is no fold: in the order of the elements.
Kernel RegionKernel(const Region& region, const Shape& shape, const Axes& reduced,
                    const std::vector<TensorType>& types) {
  Axes kept;
  for (int64_t axis = 0; axis < static_cast<int64_t>(shape.size()); ++axis) {
    if (std::ranges::count(reduced, axis) == 0) kept.push_back(axis);
  }
  // The operand's elements in the order in which they are reduced.
  Axes order = kept;
  order.insert(order.end(), reduced.begin(), reduced.end());
  const Shape extents = Permuted(shape, order);
  const Walk walk({extents, RowMajorStrides(extents), PermutedStrides(shape, order), 0, 0});
  const int64_t each = Elements(Permuted(shape, reduced));
  return Kernel([=](Inputs inputs, Outputs outputs) {
    const size_t n = outputs.size();
    std::vector<Bytes> sorted;
    for (size_t i = 0; i < n; ++i) {
      sorted.emplace_back(inputs[i]->bytes.size());
      walk.Copy(Size(types[i].type), sorted.back().data(), inputs[i]->bytes.data());
    }
    const auto results = outputs[0].bytes.size() / Size(types[0].type);
    for (size_t result = 0; result < results; ++result) {
      std::vector<Tensor> scalars;
      for (size_t i = 0; i < n; ++i) scalars.push_back(*inputs[n + i]);
      for (int64_t step = 0; step < each; ++step) {
        for (size_t i = 0; i < n; ++i) {
          const size_t bytes = Size(types[i].type);
          const size_t at =
              (result * static_cast<size_t>(each) + static_cast<size_t>(step)) * bytes;
          Tensor next(types[i]);
          std::copy_n(sorted[i].begin() + static_cast<std::ptrdiff_t>(at), bytes,
                      next.bytes.begin());
          scalars.push_back(std::move(next));
        }
        scalars = RunOn(*region, scalars);
      }
      for (size_t i = 0; i < n; ++i) {
        const size_t bytes = Size(types[i].type);
        std::ranges::copy(scalars[i].bytes,
                          outputs[i].bytes.begin() + static_cast<std::ptrdiff_t>(result * bytes));
      }
    }
  });
}

}  // namespace

// n operands of one shape, n scalars to begin with; the region takes and gives scalars of their
// types.
StatusOr<Kernel> Reduce(const Operation& op) {
  const size_t n = op.operands() / 2;
  if (n == 0) return op.Fail("no operands");
  RING_RETURN_IF_ERROR(op.Expect(2 * n, n, 1));
  const Shape& shape = op.operand(0).shape;
  RING_ASSIGN_OR_RETURN(const Axes reduced, op.Axes("dimensions", shape.size()));
  Shape kept;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (std::ranges::count(reduced, static_cast<int64_t>(axis)) == 0) kept.push_back(shape[axis]);
  }
  std::vector<TensorType> scalars;
  for (size_t i = 0; i < n; ++i) {
    RING_RETURN_IF_ERROR(op.ExpectOperand(i, {op.operand(i).type, shape}));
    RING_RETURN_IF_ERROR(op.ExpectOperand(n + i, {op.operand(i).type, {}}));
    RING_RETURN_IF_ERROR(op.ExpectResult({op.operand(i).type, kept}, i));
    scalars.push_back({op.operand(i).type, {}});
  }
  std::vector<TensorType> pairs = scalars;
  pairs.insert(pairs.end(), scalars.begin(), scalars.end());
  RING_RETURN_IF_ERROR(op.ExpectRegion(0, pairs, scalars));
  const Type type = op.operand(0).type;
  const std::optional<Fold> fold = FoldOf(*op.region(0), type);
  if (n > 1 || !fold || type == Type::kUInt64) {
    return RegionKernel(op.region(0), shape, reduced, scalars);
  }
  const std::vector<Axis> axes = PlanAxes(shape, kept, reduced);
  return IsFloat(type) ? FloatFold(*fold, axes) : IntegerFold(*fold, type, axes);
}

}  // namespace ringmaster::testing::stablehlo
