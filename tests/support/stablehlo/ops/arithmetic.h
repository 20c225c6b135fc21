// Functions of two numbers that reductions know, too. Free functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "tests/support/stablehlo/number.h"

namespace ringmaster::testing::stablehlo {

enum class Fold : uint8_t { kAdd, kMultiply, kMaximum, kMinimum, kAnd, kOr, kXor };

// add, without the dialect's name; nullopt: no fold.
inline std::optional<Fold> FindFold(std::string_view op) {
  constexpr std::array<std::string_view, 7> kNames = {"add", "multiply", "maximum", "minimum",
                                                      "and", "or",       "xor"};
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (op == kNames[i]) return static_cast<Fold>(i);
  }
  return std::nullopt;
}

// A NaN wins.
template <typename T>
T Maximum(T a, T b) {
  return a >= b || a != a ? a : b;
}
template <typename T>
T Minimum(T a, T b) {
  return a <= b || a != a ? a : b;
}

// body(function), with `function` of two Arithmetic<T>, which wraps around where T is an integer.
// kAnd and what follows it not for floats.
template <typename T, typename Body>
auto WithFold(Fold fold, Body&& body) {
  using A = Arithmetic<T>;
  if constexpr (std::is_same_v<T, bool>) {  // sums and products of i1 are or and and
    if (fold == Fold::kXor) return body([](bool a, bool b) -> bool { return a != b; });
    if (fold == Fold::kAdd || fold == Fold::kMaximum || fold == Fold::kOr) {
      return body([](bool a, bool b) -> bool { return a || b; });
    }
    return body([](bool a, bool b) -> bool { return a && b; });
  } else {
    if (fold == Fold::kMaximum) {
      return body([](A a, A b) -> A { return Maximum<A>(a, b); });
    }
    if (fold == Fold::kMinimum) {
      return body([](A a, A b) -> A { return Minimum<A>(a, b); });
    }
    if constexpr (kIsFloat<T>) {
      if (fold == Fold::kMultiply) return body([](float a, float b) -> float { return a * b; });
      return body([](float a, float b) -> float { return a + b; });
    } else {
      using Bits = std::make_unsigned_t<T>;
      const auto bits = [](T x) { return static_cast<Bits>(x); };
      if (fold == Fold::kAnd) return body([](T a, T b) -> T { return a & b; });
      if (fold == Fold::kOr) return body([](T a, T b) -> T { return a | b; });
      if (fold == Fold::kXor) return body([](T a, T b) -> T { return a ^ b; });
      if (fold == Fold::kMultiply) {
        return body([bits](T a, T b) -> T { return static_cast<T>(bits(a) * bits(b)); });
      }
      return body([bits](T a, T b) -> T { return static_cast<T>(bits(a) + bits(b)); });
    }
  }
}

}  // namespace ringmaster::testing::stablehlo
