// Writes the body of one function of StableHLO, op by op in MLIR's generic form, which no version
// prints otherwise. A value that an op makes is a Tensor; constants and masks that are asked for
// again are made once. Owned by who emits a module; thread-compatible. What it writes is a function
// of the calls alone.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/graph/tensor_type.h"

namespace ringmaster::pjrt {

// Of what is computed; what crosses to the host is an Element (worker/backend/pjrt/tensor_type.h).
enum class ElementKind : uint8_t {
  kPred,
  kInt32,
  kUInt32,
  kUInt64,
  kFloat32,
  kBFloat16,
  kFloat16,
};
[[nodiscard]] ElementKind ElementOf(graph::DType dtype);

// A value of the function.
struct Tensor {
  std::string name;  // %conv1_12
  ElementKind element = ElementKind::kFloat32;
  graph::Shape shape;

  [[nodiscard]] std::string type() const;  // tensor<4x5xf32>
};

// How a reduction folds two elements: from 0, or from -infinity.
enum class Fold : uint8_t { kAdd, kMaximum };

struct Padding {
  int64_t low = 0, high = 0;
};

// Of each axis.
struct Windows {
  std::vector<int64_t> window, strides;
  std::vector<Padding> padding;
};

// Of height and width, where there are two.
struct Convolution {
  const char* dimensions;  // [b, 0, 1, f]x[o, 0, 1, i]->[b, 0, 1, f]
  std::array<int64_t, 2> strides = {1, 1};
  std::array<Padding, 2> padding = {};
  std::array<int64_t, 2> x_dilations = {1, 1}, kernel_dilations = {1, 1};
  int64_t feature_groups = 1, batch_groups = 1;
  ElementKind result = ElementKind::kFloat32;
};

class Builder {
 public:
  // What names of values begin with from here on; characters that MLIR has no place for become _.
  void SetScope(std::string_view scope);
  // A name that no value has yet.
  [[nodiscard]] std::string NewName();

  [[nodiscard]] Tensor Constant(double value, const graph::Shape& shape = {},
                                ElementKind element = ElementKind::kFloat32);
  [[nodiscard]] Tensor Integer(uint64_t value, const graph::Shape& shape, ElementKind element);
  [[nodiscard]] Tensor Zero(const graph::Shape& shape, ElementKind element);
  [[nodiscard]] Tensor Iota(size_t axis, const graph::Shape& shape, ElementKind element);

  // Element by element: operands of one type, the result of the first one's.
  [[nodiscard]] Tensor Unary(std::string_view op, const Tensor& x);
  [[nodiscard]] Tensor Binary(std::string_view op, const Tensor& a, const Tensor& b);
  [[nodiscard]] Tensor Add(const Tensor& a, const Tensor& b) { return Binary("add", a, b); }
  [[nodiscard]] Tensor Subtract(const Tensor& a, const Tensor& b) {
    return Binary("subtract", a, b);
  }
  [[nodiscard]] Tensor Multiply(const Tensor& a, const Tensor& b) {
    return Binary("multiply", a, b);
  }
  [[nodiscard]] Tensor Divide(const Tensor& a, const Tensor& b) { return Binary("divide", a, b); }
  // `direction`: EQ, GT, GE, LT, LE.
  [[nodiscard]] Tensor Compare(std::string_view direction, const Tensor& a, const Tensor& b);
  [[nodiscard]] Tensor Select(const Tensor& condition, const Tensor& yes, const Tensor& no);
  // The same tensor where it has that type already.
  [[nodiscard]] Tensor Convert(const Tensor& x, ElementKind element);

  // Axis i of x becomes axes[i]; extents of 1 widen.
  [[nodiscard]] Tensor Broadcast(const Tensor& x, const graph::Shape& shape,
                                 const std::vector<int64_t>& axes);
  // A scalar everywhere.
  [[nodiscard]] Tensor Fill(const Tensor& scalar, const graph::Shape& shape) {
    return Broadcast(scalar, shape, {});
  }
  // A tensor of lower or equal rank over the last axes.
  [[nodiscard]] Tensor OverLast(const Tensor& x, const graph::Shape& shape);
  [[nodiscard]] Tensor Reshape(const Tensor& x, const graph::Shape& shape);
  [[nodiscard]] Tensor Transpose(const Tensor& x, const std::vector<int64_t>& permutation);
  [[nodiscard]] Tensor Reverse(const Tensor& x, const std::vector<int64_t>& axes);
  [[nodiscard]] Tensor Slice(const Tensor& x, const std::vector<int64_t>& begin,
                             const std::vector<int64_t>& end);
  [[nodiscard]] Tensor Concatenate(const std::vector<Tensor>& parts, size_t axis);
  // What the fold starts from round x, and `between` of it between x's elements; of each axis.
  [[nodiscard]] Tensor Pad(const Tensor& x, const std::vector<Padding>& padding,
                           const std::vector<int64_t>& between, Fold fold = Fold::kAdd);

  // The same values, which no compiler merges with what else computes them.
  [[nodiscard]] std::vector<Tensor> Apart(const std::vector<Tensor>& values);

  // Over those axes, which go.
  [[nodiscard]] Tensor Reduce(Fold fold, const Tensor& x, const std::vector<int64_t>& axes);
  [[nodiscard]] Tensor ReduceWindow(Fold fold, const Tensor& x, const Windows& windows);
  // Adds each element of dy to where the first maximum of its window of x lies.
  [[nodiscard]] Tensor ScatterToMaximum(const Tensor& x, const Tensor& dy, const Windows& windows);
  // Contracts one axis of each; float32. 16-bit operands are multiplied as they are, float32 ones
  // without a loss, whatever the device would rather do.
  [[nodiscard]] Tensor Dot(const Tensor& a, const Tensor& b, int64_t a_axis, int64_t b_axis);
  // Likewise, of the element type that is asked for.
  [[nodiscard]] Tensor Convolve(const Tensor& x, const Tensor& kernel,
                                const Convolution& convolution, const graph::Shape& shape);

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  // Appends one op of one result.
  Tensor Append(std::string_view op, const std::vector<Tensor>& operands,
                std::string_view attributes, ElementKind element, const graph::Shape& shape,
                std::string_view regions = "");
  // The scalar that is written so, over the shape.
  Tensor Splat(const std::string& literal, const graph::Shape& shape, ElementKind element);
  [[nodiscard]] Tensor Start(Fold fold, ElementKind element);

  std::string scope_ = "value", text_;
  uint64_t names_ = 0;
  std::map<std::string, Tensor> made_;  // by the text of the op
};

}  // namespace ringmaster::pjrt
