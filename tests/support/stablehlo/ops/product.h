// What products of matrices need around them: operands as floats in the order of axes that the
// product wants, and results put back into theirs. Immutable plans; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/support/stablehlo/operation.h"
#include "tests/support/stablehlo/ops/walk.h"
#include "tests/support/stablehlo/tensor.h"

namespace ringmaster::testing::stablehlo {

// That operands are f32, bf16 or f16, both the same, and the result that or f32.
[[nodiscard]] Status CheckProductTypes(const Operation& op);

// Room for floats that each thread keeps from one op to the next: fresh pages cost more than what
// is copied there.
enum class Room : uint8_t { kLhs, kRhs, kResult, kWide, kPatches };
[[nodiscard]] float* Take(Room room, size_t floats);

// A tensor's axes in the order `axes`, as floats.
class Arranged {
 public:
  Arranged(const TensorType& type, const Axes& axes);

  [[nodiscard]] bool as_it_is() const { return as_it_is_; }
  // In the tensor itself where nothing must be done, else in `room`.
  [[nodiscard]] const float* Of(const Tensor& tensor, Room room) const;

 private:
  Type type_;
  bool as_it_is_;
  size_t elements_;
  Walk walk_;
};

// The other way round: floats whose axis i is the result's axis axes[i].
class Placed {
 public:
  Placed(const TensorType& result, const Axes& axes);

  // Where to compute: the tensor itself or a room. Finish brings it into the tensor.
  float* Begin(Tensor* result) const;
  void Finish(const float* computed, Tensor* result) const;

 private:
  Type type_;
  bool as_it_is_;
  size_t elements_;
  Walk walk_;
};

// Row-major; `lhs` is rows x inner or, where it is transposed, inner x rows; `rhs` likewise.
struct Product {
  int64_t rows = 0, inner = 0, columns = 0;
  bool lhs_transposed = false, rhs_transposed = false;
  int64_t rhs_stride = 0;     // from row to row of what is stored; 0: dense
  int64_t result_stride = 0;  // likewise
};

// result = lhs * rhs in float, on this thread.
void Multiply(const Product& product, const float* lhs, const float* rhs, float* result);

}  // namespace ringmaster::testing::stablehlo
