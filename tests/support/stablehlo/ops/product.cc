#include "tests/support/stablehlo/ops/product.h"

#include <Eigen/Core>
#include <algorithm>
#include <numeric>

#include "tests/support/stablehlo/number.h"

namespace ringmaster::testing::stablehlo {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Stride = Eigen::OuterStride<>;
using Stored = Eigen::Map<const Matrix, Eigen::Unaligned, Stride>;

bool InOrder(const Axes& axes) { return std::ranges::is_sorted(axes); }

}  // namespace

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

const float* Arranged::Of(const Tensor& tensor, std::vector<float>* scratch) const {
  std::vector<float> wide;
  const float* from = tensor.data<float>();
  if (type_ != Type::kFloat32) {
    wide.resize(elements_);
    if (type_ == Type::kBFloat16) {
      std::copy_n(tensor.data<BFloat16>(), elements_, wide.data());
    } else {
      std::copy_n(tensor.data<Float16>(), elements_, wide.data());
    }
    if (as_it_is_) {
      scratch->swap(wide);
      return scratch->data();
    }
    from = wide.data();
  }
  if (as_it_is_) return from;
  scratch->resize(elements_);
  walk_.Copy(sizeof(float), reinterpret_cast<std::byte*>(scratch->data()),
             reinterpret_cast<const std::byte*>(from));
  return scratch->data();
}

Placed::Placed(const TensorType& result, const Axes& axes)
    : type_(result.type),
      as_it_is_(InOrder(axes)),
      elements_(static_cast<size_t>(Elements(result.shape))),
      walk_({Permuted(result.shape, axes), PermutedStrides(result.shape, axes),
             RowMajorStrides(Permuted(result.shape, axes)), 0, 0}) {}

float* Placed::Begin(Tensor* result, std::vector<float>* scratch) const {
  if (type_ == Type::kFloat32 && as_it_is_) return result->data<float>();
  scratch->resize(elements_);
  return scratch->data();
}

void Placed::Finish(const std::vector<float>& scratch, Tensor* result) const {
  if (type_ == Type::kFloat32) {
    if (as_it_is_) return;
    walk_.Copy(sizeof(float), result->bytes.data(),
               reinterpret_cast<const std::byte*>(scratch.data()));
    return;
  }
  std::vector<uint16_t> narrow(elements_);
  for (size_t i = 0; i < elements_; ++i) {
    narrow[i] = type_ == Type::kBFloat16 ? BFloat16(scratch[i]).bits : Float16(scratch[i]).bits;
  }
  walk_.Copy(sizeof(uint16_t), result->bytes.data(),
             reinterpret_cast<const std::byte*>(narrow.data()));
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
