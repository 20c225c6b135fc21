// dot_general: batches of products of matrices.
#include <algorithm>

#include "tests/support/stablehlo/ops/op_table.h"
#include "tests/support/stablehlo/ops/product.h"

namespace ringmaster::testing::stablehlo {
namespace {

Axes FreeAxes(size_t rank, const Axes& batch, const Axes& contracting) {
  Axes free;
  for (int64_t axis = 0; axis < static_cast<int64_t>(rank); ++axis) {
    if (std::ranges::count(batch, axis) + std::ranges::count(contracting, axis) == 0) {
      free.push_back(axis);
    }
  }
  return free;
}

Axes Joined(Axes first, const Axes& second, const Axes& third) {
  first.insert(first.end(), second.begin(), second.end());
  first.insert(first.end(), third.begin(), third.end());
  return first;
}

Status CheckPairs(const Operation& op, const std::string& name, const Axes& lhs, const Axes& rhs) {
  if (lhs.size() != rhs.size()) {
    return op.Fail("{} {} dimensions of lhs, {} of rhs", lhs.size(), name, rhs.size());
  }
  for (size_t i = 0; i < lhs.size(); ++i) {
    const int64_t left = op.operand(0).shape[static_cast<size_t>(lhs[i])];
    const int64_t right = op.operand(1).shape[static_cast<size_t>(rhs[i])];
    if (left == right) continue;
    return op.Fail("{} dimension {} of {} has another extent than {} of {}", name, lhs[i],
                   Text(op.operand(0)), rhs[i], Text(op.operand(1)));
  }
  return absl::OkStatus();
}

}  // namespace

// The result's axes: batch, what is left of lhs, what is left of rhs.
StatusOr<Kernel> DotGeneral(const Operation& op) {
  RING_RETURN_IF_ERROR(CheckProductTypes(op));
  RING_RETURN_IF_ERROR(op.Ignore<EnumListAttribute>("precision_config"));
  RING_ASSIGN_OR_RETURN(Numbers numbers, Numbers::Of(op, "dot_dimension_numbers", "stablehlo.dot"));
  const Axes lhs_batch = numbers.List("lhs_batching_dimensions");
  const Axes rhs_batch = numbers.List("rhs_batching_dimensions");
  const Axes lhs_inner = numbers.List("lhs_contracting_dimensions");
  const Axes rhs_inner = numbers.List("rhs_contracting_dimensions");
  RING_RETURN_IF_ERROR(numbers.CheckAllRead(op));
  const Shape& lhs = op.operand(0).shape;
  const Shape& rhs = op.operand(1).shape;
  RING_RETURN_IF_ERROR(
      op.CheckAxes("lhs dimensions", Joined(lhs_batch, lhs_inner, {}), lhs.size()));
  RING_RETURN_IF_ERROR(
      op.CheckAxes("rhs dimensions", Joined(rhs_batch, rhs_inner, {}), rhs.size()));
  RING_RETURN_IF_ERROR(CheckPairs(op, "batching", lhs_batch, rhs_batch));
  RING_RETURN_IF_ERROR(CheckPairs(op, "contracting", lhs_inner, rhs_inner));
  const Axes lhs_free = FreeAxes(lhs.size(), lhs_batch, lhs_inner);
  const Axes rhs_free = FreeAxes(rhs.size(), rhs_batch, rhs_inner);
  const Shape shape =
      Joined(Permuted(lhs, lhs_batch), Permuted(lhs, lhs_free), Permuted(rhs, rhs_free));
  RING_RETURN_IF_ERROR(op.ExpectResult({op.result().type, shape}));

  Product product;
  product.rows = Elements(Permuted(lhs, lhs_free));
  product.inner = Elements(Permuted(lhs, lhs_inner));
  product.columns = Elements(Permuted(rhs, rhs_free));
  const int64_t batch = Elements(Permuted(lhs, lhs_batch));
  // What lies there transposed may stay so.
  const Axes lhs_other = Joined(lhs_batch, lhs_inner, lhs_free);
  const Axes rhs_other = Joined(rhs_batch, rhs_free, rhs_inner);
  product.lhs_transposed = std::ranges::is_sorted(lhs_other);
  product.rhs_transposed = std::ranges::is_sorted(rhs_other);
  const Arranged left(op.operand(0),
                      product.lhs_transposed ? lhs_other : Joined(lhs_batch, lhs_free, lhs_inner));
  const Arranged right(op.operand(1),
                       product.rhs_transposed ? rhs_other : Joined(rhs_batch, rhs_inner, rhs_free));
  Axes all(shape.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  const Placed placed(op.result(), all);
  return Kernel([=](Inputs inputs, Outputs outputs) {
    const float* a = left.Of(*inputs[0], Room::kLhs);
    const float* b = right.Of(*inputs[1], Room::kRhs);
    float* c = placed.Begin(&outputs[0]);
    for (int64_t i = 0; i < batch; ++i) {
      Multiply(product, a + i * product.rows * product.inner,
               b + i * product.inner * product.columns, c + i * product.rows * product.columns);
    }
    placed.Finish(c, &outputs[0]);
  });
}

}  // namespace ringmaster::testing::stablehlo
