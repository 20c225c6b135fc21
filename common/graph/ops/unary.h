// The elementwise family: y = f(x), x and y of one shape. An op is one struct here and a row in the
// list; its gradient op is UnaryGradient of it. Shape rules, gradient rules and references are made
// of the formulas (op_table.cc), kernels by each backend from its number type. Constants;
// thread-safe.
//
// R is a number type with + - * / and comparisons, made from double: float64 in the reference, a
// packet of float32 on a CPU, one float32 on a GPU. Formulas call only what `Scalar functions`
// lists, so that no backend needs a library of its own behind them. NaN passes. relu and cast,
// last, have rules of their own.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <numbers>
#include <string_view>
#include <tuple>

#include "common/graph/ops/op.h"
#include "common/numeric/host_device.h"

namespace ringmaster::graph {

// Scalar functions of the reference; another number type brings the same.
inline double Abs(double x) { return std::abs(x); }
inline double Erf(double x) { return std::erf(x); }
inline double Exp(double x) { return std::exp(x); }
inline double Expm1(double x) { return std::expm1(x); }
inline double Log1p(double x) { return std::log1p(x); }
inline double TanhOf(double x) { return std::tanh(x); }  // Tanh is the op
inline double Select(bool condition, double yes, double no) { return condition ? yes : no; }

// What a gradient is computed from beside dy: operands of the gradient op, in this order.
enum class Reads : uint8_t { kX = 1, kY = 2, kBoth = 3 };
constexpr bool ReadsX(Reads reads) { return reads != Reads::kY; }
constexpr bool ReadsY(Reads reads) { return reads != Reads::kX; }

template <typename R>
RING_HOST_DEVICE R Logistic(R x) {
  return R(1) / (R(1) + Exp(R(0) - x));
}

// max(x, 0) where that is less than `most`.
template <typename R>
RING_HOST_DEVICE R Clamp(R x, double most) {
  return Select(x <= R(0), R(0), Select(x >= R(most), R(most), x));
}

// `inside` where 0 < y < most, else 0.
template <typename R>
RING_HOST_DEVICE R InsideClamp(R y, double most, R inside) {
  return Select(y <= R(0), R(0), Select(y >= R(most), R(0), inside));
}

// min(max(x, 0), 6)
struct Relu6 {
  static constexpr OpTraits kTraits = {
      .name = "relu6", .keras = "Activation", .storage = Storage::kInPlace};
  static constexpr Reads kReads = Reads::kY;
  template <typename R>
  RING_HOST_DEVICE R Forward(R x) const {
    return Clamp(x, 6);
  }
  template <typename R>
  RING_HOST_DEVICE R Backward(R, R y, R dy) const {
    return InsideClamp(y, 6, dy);
  }
};

// x where x > 0, else slope x
struct LeakyRelu {
  double slope = 0.3;  // at least 0, so that the sign of y is that of x
  static constexpr auto Fields() {
    return std::tuple(Field{"slope", &LeakyRelu::slope, "of negative elements"});
  }
  [[nodiscard]] Status Check() const {
    if (slope >= 0 && std::isfinite(slope)) return absl::OkStatus();
    return InvalidArgument("slope must be a number of at least 0, got {}", slope);
  }
  static constexpr OpTraits kTraits = {
      .name = "leaky_relu", .keras = "LeakyReLU", .storage = Storage::kInPlace};
  static constexpr Reads kReads = Reads::kY;
  template <typename R>
  RING_HOST_DEVICE R Forward(R x) const {
    return Select(x <= R(0), R(slope) * x, x);
  }
  template <typename R>
  RING_HOST_DEVICE R Backward(R, R y, R dy) const {
    return Select(y <= R(0), R(slope) * dy, dy);
  }
};

// x where x > 0, else alpha (exp(x) - 1) (Clevert, Unterthiner and Hochreiter, 2015)
struct Elu {
  double alpha = 1;  // above 0, likewise
  static constexpr auto Fields() {
    return std::tuple(Field{"alpha", &Elu::alpha, "what large negative elements come near to"});
  }
  [[nodiscard]] Status Check() const {
    if (alpha > 0 && std::isfinite(alpha)) return absl::OkStatus();
    return InvalidArgument("alpha must be a number above 0, got {}", alpha);
  }
  static constexpr OpTraits kTraits = {.name = "elu", .keras = "ELU", .storage = Storage::kInPlace};
  static constexpr Reads kReads = Reads::kY;
  template <typename R>
  RING_HOST_DEVICE R Forward(R x) const {
    return Select(x <= R(0), R(alpha) * Expm1(x), x);
  }
  template <typename R>
  RING_HOST_DEVICE R Backward(R, R y, R dy) const {
    return Select(y <= R(0), dy * (y + R(alpha)), dy);
  }
};

// 1 / (1 + exp(-x))
struct Sigmoid {
  static constexpr OpTraits kTraits = {
      .name = "sigmoid", .keras = "Activation", .storage = Storage::kInPlace};
  static constexpr Reads kReads = Reads::kY;
  template <typename R>
  RING_HOST_DEVICE R Forward(R x) const {
    return Logistic(x);
  }
  template <typename R>
  RING_HOST_DEVICE R Backward(R, R y, R dy) const {
    return dy * y * (R(1) - y);
  }
};

// relu6(x + 3) / 6
struct HardSigmoid {
  static constexpr OpTraits kTraits = {
      .name = "hard_sigmoid", .keras = "Activation", .storage = Storage::kInPlace};
  static constexpr Reads kReads = Reads::kY;
  template <typename R>
  RING_HOST_DEVICE R Forward(R x) const {
    return Clamp(x + R(3), 6) / R(6);
  }
  template <typename R>
  RING_HOST_DEVICE R Backward(R, R y, R dy) const {
    return InsideClamp(y, 1, dy / R(6));
  }
};

// x relu6(x + 3) / 6 (Howard et al., "Searching for MobileNetV3", 2019)
struct HardSwish {
  static constexpr OpTraits kTraits = {
      .name = "hard_swish", .keras = "Activation", .storage = Storage::kInPlace};
  static constexpr Reads kReads = Reads::kX;
  template <typename R>
  RING_HOST_DEVICE R Forward(R x) const {
    return x * (Clamp(x + R(3), 6) / R(6));
  }
  template <typename R>
  RING_HOST_DEVICE R Backward(R x, R, R dy) const {
    const R inside = dy * (R(2) * x + R(3)) / R(6);
    return Select(x <= R(-3), R(0), Select(x >= R(3), dy, inside));
  }
};

struct Tanh {
  static constexpr OpTraits kTraits = {
      .name = "tanh", .keras = "Activation", .storage = Storage::kInPlace};
  static constexpr Reads kReads = Reads::kY;
  template <typename R>
  RING_HOST_DEVICE R Forward(R x) const {
    return TanhOf(x);
  }
  template <typename R>
  RING_HOST_DEVICE R Backward(R, R y, R dy) const {
    return dy * (R(1) - y * y);
  }
};

// x sigmoid(x) (Ramachandran, Zoph and Le, "Searching for activation functions", 2017)
struct Swish {
  static constexpr OpTraits kTraits = {
      .name = "swish", .keras = "Activation", .storage = Storage::kInPlace};
  static constexpr Reads kReads = Reads::kBoth;
  template <typename R>
  RING_HOST_DEVICE R Forward(R x) const {
    return x * Logistic(x);
  }
  template <typename R>
  RING_HOST_DEVICE R Backward(R x, R y, R dy) const {
    return dy * Slope(Logistic(x), y);
  }
  // Where nobody kept y.
  template <typename R>
  RING_HOST_DEVICE R Backward(R x, R dy) const {
    const R s = Logistic(x);
    return dy * Slope(s, x * s);
  }

 private:
  template <typename R>
  RING_HOST_DEVICE static R Slope(R s, R y) {
    return s + y * (R(1) - s);
  }
};

// log(1 + exp(x)), without overflow
struct Softplus {
  static constexpr OpTraits kTraits = {
      .name = "softplus", .keras = "Activation", .storage = Storage::kInPlace};
  static constexpr Reads kReads = Reads::kX;
  template <typename R>
  RING_HOST_DEVICE R Forward(R x) const {
    return Select(x <= R(0), R(0), x) + Log1p(Exp(R(0) - Abs(x)));
  }
  template <typename R>
  RING_HOST_DEVICE R Backward(R x, R, R dy) const {
    return dy * Logistic(x);
  }
};

// x Phi(x), Phi the normal distribution's, or by tanh what comes near to it (Hendrycks and Gimpel,
// "Gaussian error linear units", 2016)
struct Gelu {
  enum class Approximate : uint8_t { kNone, kTanh };
  friend constexpr const char* Name(Approximate approximate) {
    return approximate == Approximate::kTanh ? "tanh" : "none";
  }
  Approximate approximate = Approximate::kNone;
  static constexpr auto Fields() {
    return std::tuple(Field{"approximate", &Gelu::approximate, "none, or tanh"});
  }
  static constexpr OpTraits kTraits = {
      .name = "gelu", .keras = "Activation", .storage = Storage::kInPlace};
  static constexpr Reads kReads = Reads::kX;
  template <typename R>
  RING_HOST_DEVICE R Forward(R x) const {
    return x * R(0.5) * (R(1) + Bend(x));
  }
  template <typename R>
  RING_HOST_DEVICE R Backward(R x, R, R dy) const {
    const R bend = Bend(x);
    return dy * R(0.5) * (R(1) + bend + x * BendSlope(x, bend));
  }

 private:
  static constexpr double kTanhScale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  static constexpr double kCube = 0.044715;

  // 2 Phi(x) - 1 and its derivative.
  template <typename R>
  RING_HOST_DEVICE R Bend(R x) const {
    if (approximate == Approximate::kNone) return Erf(x * R(1 / std::numbers::sqrt2));
    return TanhOf(R(kTanhScale) * (x + R(kCube) * x * x * x));
  }
  template <typename R>
  RING_HOST_DEVICE R BendSlope(R x, R bend) const {
    if (approximate == Approximate::kNone) return R(kTanhScale) * Exp(x * x * R(-0.5));
    return (R(1) - bend * bend) * R(kTanhScale) * (R(1) + R(3 * kCube) * x * x);
  }
};

template <typename Op>
concept UnaryOp = requires {
  Op::kReads;
}
&&!requires { typename Op::Of; };
template <typename Op>
concept UnaryGradientOp = requires {
  typename Op::Of;
};

// NAME_gradient
template <typename Op>
struct GradientName {
  static constexpr auto Join() {
    constexpr std::string_view name = Op::kTraits.name, suffix = "_gradient";
    std::array<char, name.size() + suffix.size() + 1> joined{};
    std::copy(suffix.begin(), suffix.end(), std::copy(name.begin(), name.end(), joined.begin()));
    return joined;
  }
  static constexpr auto kText = Join();
};

// [x] [y] dy -> dx, with those operands that the formula reads
template <UnaryOp Op>
struct UnaryGradient : Op {
  using Of = Op;
  static constexpr int kDy = Op::kReads == Reads::kBoth ? 2 : 1;
  static constexpr OpTraits kTraits = {.name = GradientName<Op>::kText.data(),
                                       .storage = Storage::kInPlace,
                                       .storage_input = kDy,
                                       .internal = true};
};

// relu, and its gradient, which masks by the output: dx = dy where y > 0, else 0.

// x -> y
struct Relu {
  static constexpr OpTraits kTraits = {
      .name = "relu", .keras = "ReLU", .storage = Storage::kInPlace};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// y dy -> dx
struct ReluGradient {
  static constexpr OpTraits kTraits = {
      .name = "relu_gradient", .storage = Storage::kInPlace, .storage_input = 1, .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

// cast: x -> x in another floating type, rounded half to even; the type is that of its output.
struct Cast {
  static constexpr OpTraits kTraits = {.name = "cast", .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

}  // namespace ringmaster::graph
