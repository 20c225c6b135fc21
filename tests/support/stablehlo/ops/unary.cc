// Ops of one operand, element by element, and conversions between element types.
#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

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
  if (name == "sign") {
    return Map<T>([](float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; });
  }
  if (name == "exponential") return Map<T>([](float x) { return std::exp(x); });
  if (name == "exponential_minus_one") return Map<T>([](float x) { return std::expm1(x); });
  if (name == "log") return Map<T>([](float x) { return std::log(x); });
  if (name == "log_plus_one") return Map<T>([](float x) { return std::log1p(x); });
  if (name == "tanh") return Map<T>([](float x) { return std::tanh(x); });
  if (name == "logistic") return Map<T>([](float x) { return 1 / (1 + std::exp(-x)); });
  if (name == "rsqrt") return Map<T>([](float x) { return 1 / std::sqrt(x); });
  if (name == "sqrt") return Map<T>([](float x) { return std::sqrt(x); });
  if (name == "cbrt") return Map<T>([](float x) { return std::cbrt(x); });
  if (name == "floor") return Map<T>([](float x) { return std::floor(x); });
  if (name == "ceil") return Map<T>([](float x) { return std::ceil(x); });
  if (name == "round_nearest_even") return Map<T>([](float x) { return std::nearbyint(x); });
  if (name == "cosine") return Map<T>([](float x) { return std::cos(x); });
  if (name == "sine") return Map<T>([](float x) { return std::sin(x); });
  return op.Fail("not of {}", Name(op.operand(0).type));
}

template <typename T>
StatusOr<Kernel> IntegerMap(const Operation& op, std::string_view name) {
  using Bits = std::make_unsigned_t<T>;
  if (name == "negate")
    return Map<T>([](T x) { return static_cast<Bits>(0) - static_cast<Bits>(x); });
  if (name == "not") return Map<T>([](T x) { return ~x; });
  if (name == "sign") return Map<T>([](T x) { return x > 0 ? 1 : x == 0 ? 0 : -1; });
  if (name == "abs" && std::is_signed_v<T>) {
    return Map<T>(
        [](T x) { return x < 0 ? Bits(0) - static_cast<Bits>(x) : static_cast<Bits>(x); });
  }
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

// The nearest number with so many bits of exponent and mantissa, as the specification has it.
float Reduced(float value, int exponent_bits, int mantissa_bits) {
  auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return value;
  if (mantissa_bits < 23) {
    const int dropped = 23 - mantissa_bits;
    const uint32_t last = (bits >> dropped) & 1;
    bits += (uint32_t{1} << (dropped - 1)) - 1 + last;
    bits &= ~((uint32_t{1} << dropped) - 1);
  }
  if (exponent_bits < 8) {
    const uint32_t bias = (1u << (exponent_bits - 1)) - 1;
    const uint32_t exponent = bits & 0x7f800000;
    const uint32_t sign = bits & 0x80000000;
    if (exponent > (127 + bias) << 23) bits = sign | 0x7f800000;
    if (exponent <= (127 - bias) << 23) bits = sign;
  }
  return std::bit_cast<float>(bits);
}

}  // namespace

// operand of any shape; a result of the same type, is_finite one of i1.
StatusOr<Kernel> Unary(const Operation& op) {
  RING_RETURN_IF_ERROR(op.Expect(1, 1));
  const TensorType& type = op.operand(0);
  const std::string name = op.op().substr(op.op().find('.') + 1);
  if (name == "is_finite") {
    if (!IsFloat(type.type)) return op.Fail("not of {}", Name(type.type));
    RING_RETURN_IF_ERROR(op.ExpectResult({Type::kPred, type.shape}));
    return Dispatch(type.type, [](auto zero) {
      using T = decltype(zero);
      return Kernel([](Inputs inputs, Outputs outputs) {
        for (size_t i = 0; i < outputs[0].bytes.size(); ++i) {
          outputs[0].data<bool>()[i] = std::isfinite(static_cast<float>(inputs[0]->data<T>()[i]));
        }
      });
    });
  }
  RING_RETURN_IF_ERROR(op.ExpectResult(type));
  return Dispatch(type.type, [&](auto zero) -> StatusOr<Kernel> {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, bool>) {
      if (name == "not") return Map<bool>([](bool x) { return !x; });
      return op.Fail("not of i1");
    } else if constexpr (kIsFloat<T>) {
      return FloatMap<T>(op, name);
    } else {
      return IntegerMap<T>(op, name);
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

// The same bytes; a wider element is a last axis of narrower ones.
StatusOr<Kernel> BitcastConvert(const Operation& op) {
  RING_RETURN_IF_ERROR(op.Expect(1, 1));
  const TensorType& from = op.operand(0);
  const TensorType& to = op.result();
  if (from.type == Type::kPred || to.type == Type::kPred) return op.Fail("not of i1");
  Shape wide = Size(from.type) > Size(to.type) ? from.shape : to.shape;
  const Shape& narrow = Size(from.type) > Size(to.type) ? to.shape : from.shape;
  const size_t sizes[] = {Size(from.type), Size(to.type)};
  if (sizes[0] != sizes[1]) {
    wide.push_back(
        static_cast<int64_t>(std::max(sizes[0], sizes[1]) / std::min(sizes[0], sizes[1])));
  }
  if (wide != narrow) return op.Fail("{} has not the bytes of {}", Text(from), Text(to));
  return Kernel(CopyBytes, /*in_place=*/true);
}

StatusOr<Kernel> ReducePrecision(const Operation& op) {
  RING_RETURN_IF_ERROR(op.Expect(1, 1));
  RING_RETURN_IF_ERROR(op.ExpectResult(op.operand(0)));
  if (op.operand(0).type != Type::kFloat32) return op.Fail("only of f32 here");
  std::map<std::string, int> bits;
  for (const char* name : {"exponent_bits", "mantissa_bits"}) {
    RING_ASSIGN_OR_RETURN(const IntegerAttribute* value, op.Get<IntegerAttribute>(name));
    const int most = name[0] == 'e' ? 8 : 23;
    if (value->type != "i32" || value->value < (name[0] == 'e' ? 2 : 0) || value->value > most) {
      return op.Fail("{} = {} : {}: expected at most {} : i32", name, value->value, value->type,
                     most);
    }
    bits[name] = static_cast<int>(value->value);
  }
  return Map<float>([exponent = bits["exponent_bits"], mantissa = bits["mantissa_bits"]](float x) {
    return Reduced(x, exponent, mantissa);
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
