// A tensor as a number: what the formulas of the elementwise family and of losses over pairs
// (common/graph/ops/unary.h, pair_loss.h) are written in, each operator an op of the module. One
// made from double stays a number until it meets a tensor, whose shape it takes. A value;
// thread-compatible, like the builder that it writes with.
#pragma once

#include <optional>
#include <string_view>

#include "worker/backend/pjrt/emit/builder.h"

namespace ringmaster::pjrt {

class Number {
 public:
  // A comparison's result, one bit an element.
  class Mask;

  explicit Number(double all) : all_(all) {}
  // float32.
  Number(Builder* builder, Tensor tensor) : builder_(builder), tensor_(std::move(tensor)) {}

  // Over that shape, which is its own where it is a tensor.
  [[nodiscard]] Tensor Over(Builder& builder, const graph::Shape& shape) const;

  friend Number operator+(const Number& a, const Number& b);
  friend Number operator-(const Number& a, const Number& b);
  friend Number operator*(const Number& a, const Number& b);
  friend Number operator/(const Number& a, const Number& b);
  friend Mask operator<=(const Number& a, const Number& b);
  friend Mask operator>=(const Number& a, const Number& b);

  friend Number Select(const Mask& condition, const Number& yes, const Number& no);
  friend Number Abs(const Number& x);
  friend Number Erf(const Number& x);
  friend Number Exp(const Number& x);
  friend Number Expm1(const Number& x);
  friend Number Log1p(const Number& x);
  friend Number TanhOf(const Number& x);

 private:
  static Number Unary(std::string_view op, double (*of_constant)(double), const Number& x);
  static Number Binary(std::string_view op, const Number& a, const Number& b);
  static Mask Compare(std::string_view direction, const Number& a, const Number& b);

  Builder* builder_ = nullptr;    // nullptr: all elements are `all_`
  std::optional<Tensor> tensor_;  // else these
  double all_ = 0;
};

class Number::Mask {
 public:
  explicit Mask(bool all) : all_(all) {}
  Mask(Builder* builder, Tensor tensor) : builder_(builder), tensor_(std::move(tensor)) {}

 private:
  friend Number Select(const Mask& condition, const Number& yes, const Number& no);

  Builder* builder_ = nullptr;
  std::optional<Tensor> tensor_;
  bool all_ = false;
};

}  // namespace ringmaster::pjrt
