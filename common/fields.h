// The options of a struct, described once: the name that each has wherever people or programs meet
// it, and what it is for. A default is the member's own initializer. Constants; thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ringmaster {

template <typename S, typename T>
struct Field {
  const char* name;
  T S::*member;
  const char* help;
};
template <typename S, typename T>
Field(const char*, T S::*, const char*) -> Field<S, T>;

// ` name=value` for each field whose value is not its default.
template <typename S>
[[nodiscard]] std::string PrintFields(const S& values) {
  const S defaults;
  std::string text;
  const auto print = [&](const auto& field) {
    using Value = std::decay_t<decltype(values.*field.member)>;
    const Value& value = values.*field.member;
    if (value == defaults.*field.member) return;
    if constexpr (std::is_enum_v<Value>) {
      text += fmt::format(" {}={}", field.name, Name(value));
    } else if constexpr (requires { value.begin(); } && !std::is_same_v<Value, std::string>) {
      text += fmt::format(" {}={}", field.name, fmt::join(value, ","));
    } else {
      text += fmt::format(" {}={}", field.name, value);
    }
  };
  std::apply([&](const auto&... fields) { (print(fields), ...); }, S::Fields());
  return text;
}

}  // namespace ringmaster
