// Ops of one operand, element by element, and conversions between element types.
#include <algorithm>
#include <limits>

#include "tests/support/stablehlo/number.h"
#include "tests/support/stablehlo/ops/op_table.h"

namespace ringmaster::testing::stablehlo {
namespace {

template <typename T, typename Function>
Kernel Map(Function function) {
  const auto run = [function](Inputs inputs, Outputs outputs) {
    const T* from = inputs[0]->data<T>();
    T* to = outputs[0].data<T>();
    const size_t elements = outputs[0].bytes.size() / sizeof(T);
    for (size_t i = 0; i < elements; ++i) {
      to[i] = static_cast<T>(function(static_cast<Arithmetic<T>>(from[i])));
    }
  };
  return Kernel(run, /*in_place=*/true);
}

template <typename T>
StatusOr<Kernel> FloatMap(const Operation& op, std::string_view name) {
  if (name == "negate") return Map<T>([](float x) { return -x; });
  if (name == "abs") return Map<T>([](float x) { return std::fabs(x); });
  if (name == "exponential") return Map<T>([](float x) { return std::exp(x); });
  if (name == "exponential_minus_one") return Map<T>([](float x) { return std::expm1(x); });
  if (name == "log") return Map<T>([](float x) { return std::log(x); });
  if (name == "log_plus_one") return Map<T>([](float x) { return std::log1p(x); });
  if (name == "tanh") return Map<T>([](float x) { return std::tanh(x); });
  if (name == "sqrt") return Map<T>([](float x) { return std::sqrt(x); });
  return op.Fail("not of {}", Name(op.operand(0).type));
}

template <typename To, typename From>
To ConvertOne(From from) {
  if constexpr (std::is_same_v<To, bool>) {
    return static_cast<Arithmetic<From>>(from) != 0;
  } else if constexpr (kIsFloat<To>) {
    return static_cast<To>(static_cast<float>(from));
  } else if constexpr (kIsFloat<From>) {
    // As XLA: what does not fit is the nearest that does, and a NaN is 0.
    const double value = static_cast<float>(from);
    if (std::isnan(value)) return 0;
    if (value <= static_cast<double>(std::numeric_limits<To>::min())) {
      return std::numeric_limits<To>::min();
    }
    if (value >= static_cast<double>(std::numeric_limits<To>::max())) {
      return std::numeric_limits<To>::max();
    }
    return static_cast<To>(value);
  } else {
    return static_cast<To>(from);
  }
}

void CopyBytes(Inputs inputs, Outputs outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].bytes.data() != inputs[i]->bytes.data()) outputs[i].bytes = inputs[i]->bytes;
  }
}

}  // namespace

// One operand of any shape, of floats; a result of the same type.
StatusOr<Kernel> Unary(const Operation& op) {
  RING_RETURN_IF_ERROR(op.Expect(1, 1));
  RING_RETURN_IF_ERROR(op.ExpectResult(op.operand(0)));
  const std::string name = op.op().substr(op.op().find('.') + 1);
  return Dispatch(op.operand(0).type, [&](auto zero) -> StatusOr<Kernel> {
    using T = decltype(zero);
    if constexpr (kIsFloat<T>) {
      return FloatMap<T>(op, name);
    } else {
      return op.Fail("not of {}", Name(op.operand(0).type));
    }
  });
}

// The operand's shape, any element types; to the nearest, ties to even.
StatusOr<Kernel> Convert(const Operation& op) {
  RING_RETURN_IF_ERROR(op.Expect(1, 1));
  RING_RETURN_IF_ERROR(op.ExpectResult({op.result().type, op.operand(0).shape}));
  if (op.operand(0).type == op.result().type) return Kernel(CopyBytes, /*in_place=*/true);
  return Dispatch(op.operand(0).type, [&](auto from) {
    using From = decltype(from);
    return Dispatch(op.result().type, [](auto to) {
      using To = decltype(to);
      return Kernel([](Inputs inputs, Outputs outputs) {
        const From* source = inputs[0]->data<From>();
        To* target = outputs[0].data<To>();
        const size_t elements = outputs[0].bytes.size() / sizeof(To);
        for (size_t i = 0; i < elements; ++i) target[i] = ConvertOne<To>(source[i]);
      });
    });
  });
}

StatusOr<Kernel> OptimizationBarrier(const Operation& op) {
  RING_RETURN_IF_ERROR(op.Expect(op.operands(), op.operands()));
  for (size_t i = 0; i < op.operands(); ++i) {
    RING_RETURN_IF_ERROR(op.ExpectResult(op.operand(i), i));
  }
  return Kernel(CopyBytes);
}

}  // namespace ringmaster::testing::stablehlo
