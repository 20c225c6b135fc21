// One float32 of a GPU: the number type that the graph's formulas (common/graph/ops/unary.h,
// pair_loss.h) are computed in there. For .cu files only. A value; thread-safe.
#pragma once

#include <cmath>

#include "common/numeric/host_device.h"

namespace ringmaster::cuda {

class Real {
 public:
  template <typename Number>
  RING_HOST_DEVICE explicit Real(Number number) : value_(static_cast<float>(number)) {}
  RING_HOST_DEVICE explicit operator float() const { return value_; }

  RING_HOST_DEVICE friend Real operator+(Real a, Real b) { return Real(a.value_ + b.value_); }
  RING_HOST_DEVICE friend Real operator-(Real a, Real b) { return Real(a.value_ - b.value_); }
  RING_HOST_DEVICE friend Real operator*(Real a, Real b) { return Real(a.value_ * b.value_); }
  RING_HOST_DEVICE friend Real operator/(Real a, Real b) { return Real(a.value_ / b.value_); }
  RING_HOST_DEVICE friend bool operator<=(Real a, Real b) { return a.value_ <= b.value_; }
  RING_HOST_DEVICE friend bool operator>=(Real a, Real b) { return a.value_ >= b.value_; }
  RING_HOST_DEVICE friend Real Select(bool condition, Real yes, Real no) {
    return condition ? yes : no;
  }
  RING_HOST_DEVICE friend Real Abs(Real x) { return Real(fabsf(x.value_)); }
  RING_HOST_DEVICE friend Real Erf(Real x) { return Real(erff(x.value_)); }
  RING_HOST_DEVICE friend Real Exp(Real x) { return Real(expf(x.value_)); }
  RING_HOST_DEVICE friend Real Expm1(Real x) { return Real(expm1f(x.value_)); }
  RING_HOST_DEVICE friend Real Log1p(Real x) { return Real(log1pf(x.value_)); }
  RING_HOST_DEVICE friend Real TanhOf(Real x) { return Real(tanhf(x.value_)); }

 private:
  float value_;
};

}  // namespace ringmaster::cuda
