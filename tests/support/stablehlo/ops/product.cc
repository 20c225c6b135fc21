#include "tests/support/stablehlo/ops/product.h"

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <numeric>

#include "tests/support/stablehlo/number.h"

namespace ringmaster::testing::stablehlo {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Stride = Eigen::OuterStride<>;
using Stored = Eigen::Map<const Matrix, Eigen::Unaligned, Stride>;

bool InOrder(const Axes& axes) { return std::ranges::is_sorted(axes); }

}  // namespace

float* Take(Room room, size_t floats) {
  static thread_local std::array<std::vector<float>, 5> kept;
  std::vector<float>& memory = kept[static_cast<size_t>(room)];
  if (memory.size() < floats) memory = std::vector<float>(floats);
  return memory.data();
}

Status CheckProductTypes(const Operation& op) {
  RING_RETURN_IF_ERROR(op.Expect(2, 1));
  const Type lhs = op.operand(0).type;
  const Type rhs = op.operand(1).type;
  const Type result = op.result().type;
  if (!IsFloat(lhs) || lhs != rhs || (result != lhs && result != Type::kFloat32)) {
    return op.Fail("{} by {} gives {}: expected floats, both the same, and that or f32", Name(lhs),
                   Name(rhs), Name(result));
  }
  return absl::OkStatus();
}

Arranged::Arranged(const TensorType& type, const Axes& axes)
    : type_(type.type),
      as_it_is_(InOrder(axes)),
      elements_(static_cast<size_t>(Elements(type.shape))),
      walk_({Permuted(type.shape, axes), RowMajorStrides(Permuted(type.shape, axes)),
             PermutedStrides(type.shape, axes), 0, 0}) {}

const float* Arranged::Of(const Tensor& tensor, Room room) const {
  const float* from = tensor.data<float>();
  if (type_ != Type::kFloat32) {
    float* const wide = Take(as_it_is_ ? room : Room::kWide, elements_);
    if (type_ == Type::kBFloat16) {
      std::copy_n(tensor.data<BFloat16>(), elements_, wide);
    } else {
      std::copy_n(tensor.data<Float16>(), elements_, wide);
    }
    from = wide;
  }
  if (as_it_is_) return from;
  float* const arranged = Take(room, elements_);
  walk_.Copy(sizeof(float), reinterpret_cast<std::byte*>(arranged),
             reinterpret_cast<const std::byte*>(from));
  return arranged;
}

Placed::Placed(const TensorType& result, const Axes& axes)
    : type_(result.type),
      as_it_is_(InOrder(axes)),
      elements_(static_cast<size_t>(Elements(result.shape))),
      walk_({Permuted(result.shape, axes), PermutedStrides(result.shape, axes),
             RowMajorStrides(Permuted(result.shape, axes)), 0, 0}) {}

float* Placed::Begin(Tensor* result) const {
  const bool there = type_ == Type::kFloat32 && as_it_is_;
  return there ? result->data<float>() : Take(Room::kResult, elements_);
}

void Placed::Finish(const float* computed, Tensor* result) const {
  if (computed == result->data<float>()) return;
  const void* from = computed;
  if (type_ != Type::kFloat32) {
    auto* const narrow = reinterpret_cast<uint16_t*>(Take(Room::kWide, elements_));
    for (size_t i = 0; i < elements_; ++i) {
      narrow[i] = type_ == Type::kBFloat16 ? BFloat16(computed[i]).bits : Float16(computed[i]).bits;
    }
    from = narrow;
  }
  walk_.Copy(Size(type_), result->bytes.data(), static_cast<const std::byte*>(from));
}

void Multiply(const Product& product, const float* lhs, const float* rhs, float* result) {
  const auto stored = [](const float* data, int64_t rows, int64_t columns, bool transposed,
                         int64_t stride) {
    const int64_t width = transposed ? rows : columns;
    return Stored(data, transposed ? columns : rows, width, Stride(stride == 0 ? width : stride));
  };
  const Stored a = stored(lhs, product.rows, product.inner, product.lhs_transposed, 0);
  const Stored b =
      stored(rhs, product.inner, product.columns, product.rhs_transposed, product.rhs_stride);
  Eigen::Map<Matrix, Eigen::Unaligned, Stride> c(
      result, product.rows, product.columns,
      Stride(product.result_stride == 0 ? product.columns : product.result_stride));
  if (product.lhs_transposed && product.rhs_transposed) {
    c.noalias() = a.transpose() * b.transpose();
  } else if (product.lhs_transposed) {
    c.noalias() = a.transpose() * b;
  } else if (product.rhs_transposed) {
    c.noalias() = a * b.transpose();
  } else {
    c.noalias() = a * b;
  }
}

}  // namespace ringmaster::testing::stablehlo
