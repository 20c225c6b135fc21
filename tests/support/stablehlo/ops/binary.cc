// Ops of two or three operands, element by element.
#include <map>
#include <utility>

#include "tests/support/stablehlo/number.h"
#include "tests/support/stablehlo/ops/arithmetic.h"
#include "tests/support/stablehlo/ops/op_table.h"

namespace ringmaster::testing::stablehlo {
namespace {

template <typename T, typename Function>
Kernel Zip(Function function) {
  const auto run = [function](Inputs inputs, Outputs outputs) {
    const T* left = inputs[0]->data<T>();
    const T* right = inputs[1]->data<T>();
    T* to = outputs[0].data<T>();
    const size_t elements = outputs[0].bytes.size() / sizeof(T);
    for (size_t i = 0; i < elements; ++i) {
      to[i] = static_cast<T>(
          function(static_cast<Arithmetic<T>>(left[i]), static_cast<Arithmetic<T>>(right[i])));
    }
  };
  return Kernel(run, /*in_place=*/true);
}

template <typename T>
StatusOr<Kernel> FloatZip(const Operation& op, std::string_view name) {
  if (name == "subtract") return Zip<T>([](float a, float b) { return a - b; });
  if (name == "divide") return Zip<T>([](float a, float b) { return a / b; });
  return op.Fail("not of {}", Name(op.operand(0).type));
}

template <typename T>
StatusOr<Kernel> IntegerZip(const Operation& op, std::string_view name) {
  using Bits = std::make_unsigned_t<T>;
  constexpr Bits kWidth = 8 * sizeof(T);
  if (name == "subtract") {
    return Zip<T>([](T a, T b) { return static_cast<Bits>(a) - static_cast<Bits>(b); });
  }
  if (name == "shift_right_logical") {
    return Zip<T>([](T a, T b) {
      return static_cast<Bits>(b) < kWidth ? static_cast<Bits>(a) >> static_cast<Bits>(b) : 0;
    });
  }
  return op.Fail("not of {}", Name(op.operand(0).type));
}

enum class Direction : uint8_t { kEq, kNe, kGe, kGt, kLe, kLt };

template <typename T, Direction kDirection>
Kernel CompareKernel() {
  return Kernel([](Inputs inputs, Outputs outputs) {
    const T* left = inputs[0]->data<T>();
    const T* right = inputs[1]->data<T>();
    bool* to = outputs[0].data<bool>();
    const size_t elements = outputs[0].bytes.size();
    for (size_t i = 0; i < elements; ++i) {
      const auto a = static_cast<Arithmetic<T>>(left[i]);
      const auto b = static_cast<Arithmetic<T>>(right[i]);
      if constexpr (kDirection == Direction::kEq) to[i] = a == b;
      if constexpr (kDirection == Direction::kNe) to[i] = a != b;
      if constexpr (kDirection == Direction::kGe) to[i] = a >= b;
      if constexpr (kDirection == Direction::kGt) to[i] = a > b;
      if constexpr (kDirection == Direction::kLe) to[i] = a <= b;
      if constexpr (kDirection == Direction::kLt) to[i] = a < b;
    }
  });
}

template <typename T>
Kernel CompareWith(Direction direction) {
  switch (direction) {
    case Direction::kEq:
      return CompareKernel<T, Direction::kEq>();
    case Direction::kNe:
      return CompareKernel<T, Direction::kNe>();
    case Direction::kGe:
      return CompareKernel<T, Direction::kGe>();
    case Direction::kGt:
      return CompareKernel<T, Direction::kGt>();
    case Direction::kLe:
      return CompareKernel<T, Direction::kLe>();
    default:
      return CompareKernel<T, Direction::kLt>();
  }
}

}  // namespace

// Two operands of one type, which is the result's; and, or, xor not of floats.
StatusOr<Kernel> Binary(const Operation& op) {
  RING_RETURN_IF_ERROR(op.Expect(2, 1));
  RING_RETURN_IF_ERROR(op.ExpectOperand(1, op.operand(0)));
  RING_RETURN_IF_ERROR(op.ExpectResult(op.operand(0)));
  const std::string name = op.op().substr(op.op().find('.') + 1);
  return Dispatch(op.operand(0).type, [&](auto zero) -> StatusOr<Kernel> {
    using T = decltype(zero);
    const std::optional<Fold> fold = FindFold(name);
    if (fold && (*fold <= Fold::kMinimum || !kIsFloat<T>)) {
      return WithFold<T>(*fold, [](auto function) { return Zip<T>(function); });
    }
    if constexpr (std::is_same_v<T, bool>) {
      return op.Fail("not of i1");
    } else if constexpr (kIsFloat<T>) {
      return FloatZip<T>(op, name);
    } else {
      return IntegerZip<T>(op, name);
    }
  });
}

// Two operands of one type, a result of i1; a NaN is unequal to everything.
StatusOr<Kernel> Compare(const Operation& op) {
  RING_RETURN_IF_ERROR(op.Expect(2, 1));
  RING_RETURN_IF_ERROR(op.ExpectOperand(1, op.operand(0)));
  RING_RETURN_IF_ERROR(op.ExpectResult({Type::kPred, op.operand(0).shape}));
  RING_ASSIGN_OR_RETURN(const std::string name, op.Enum("comparison_direction"));
  static const std::map<std::string, Direction> kDirections = {
      {"EQ", Direction::kEq}, {"NE", Direction::kNe}, {"GE", Direction::kGe},
      {"GT", Direction::kGt}, {"LE", Direction::kLe}, {"LT", Direction::kLt}};
  const auto direction = kDirections.find(name);
  if (direction == kDirections.end()) return op.Fail("no comparison_direction {}", name);
  const Type type = op.operand(0).type;
  if (op.Has("compare_type")) {
    RING_ASSIGN_OR_RETURN(const EnumAttribute* kind, op.Get<EnumAttribute>("compare_type"));
    const bool no_sign = type == Type::kPred || type == Type::kUInt32 || type == Type::kUInt64;
    const char* expected = IsFloat(type) ? "FLOAT" : no_sign ? "UNSIGNED" : "SIGNED";
    if (kind->name != "comparison_type" || kind->value != expected) {
      return op.Fail("compare_type {} of {}, expected {}", kind->value, Name(type), expected);
    }
  }
  return Dispatch(type, [&](auto zero) { return CompareWith<decltype(zero)>(direction->second); });
}

// i1 of the values' shape or a scalar, and two values of the result's type.
StatusOr<Kernel> Select(const Operation& op) {
  RING_RETURN_IF_ERROR(op.Expect(3, 1));
  const bool scalar = op.operand(0).shape.empty();
  RING_RETURN_IF_ERROR(op.ExpectOperand(0, {Type::kPred, scalar ? Shape() : op.operand(1).shape}));
  RING_RETURN_IF_ERROR(op.ExpectOperand(2, op.operand(1)));
  RING_RETURN_IF_ERROR(op.ExpectResult(op.operand(1)));
  return DispatchSize(Size(op.result().type), [&](auto zero) {
    using T = decltype(zero);
    return Kernel([scalar](Inputs inputs, Outputs outputs) {
      const auto* chosen = inputs[0]->data<uint8_t>();
      const T* yes = inputs[1]->data<T>();
      const T* no = inputs[2]->data<T>();
      T* to = outputs[0].data<T>();
      const size_t elements = outputs[0].bytes.size() / sizeof(T);
      if (scalar) {
        outputs[0].bytes = *chosen ? inputs[1]->bytes : inputs[2]->bytes;
        return;
      }
      for (size_t i = 0; i < elements; ++i) to[i] = chosen[i] ? yes[i] : no[i];
    });
  });
}

}  // namespace ringmaster::testing::stablehlo
