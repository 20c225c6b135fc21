// The options of a struct, described once: the name that each has wherever people or programs meet
// it, and what it is for. A default is the member's own initializer. Constants; thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

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

// A value as people write it; a type of its own has Name() when it is an enum, else ToText().
template <typename Value>
[[nodiscard]] std::string PrintValue(const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    return Name(value);
  } else if constexpr (requires { ToText(value); }) {
    return ToText(value);
  } else if constexpr (requires { value.begin(); } && !std::is_same_v<Value, std::string>) {
    return fmt::format("{}", fmt::join(value, ","));
  } else {
    return fmt::format("{}", value);
  }
}

// Calls visit(field) for each of them.
template <typename S, typename Visit>
void ForEachField(const Visit& visit) {
  std::apply([&](const auto&... fields) { (visit(fields), ...); }, S::Fields());
}

// ` name=value` for each field whose value is not its default.
template <typename S>
[[nodiscard]] std::string PrintFields(const S& values) {
  const S defaults;
  std::string text;
  ForEachField<S>([&](const auto& field) {
    const auto& value = values.*field.member;
    if (value == defaults.*field.member) return;
    text += fmt::format(" {}={}", field.name, PrintValue(value));
  });
  return text;
}

struct FieldDescription {
  std::string name, default_value, help;
};
// A default as in a job file: lists in brackets.
template <typename S>
[[nodiscard]] std::vector<FieldDescription> DescribeFields(const S& defaults = {}) {
  std::vector<FieldDescription> fields;
  ForEachField<S>([&](const auto& field) {
    const auto& value = defaults.*field.member;
    using Value = std::decay_t<decltype(value)>;
    std::string text = PrintValue(value);
    if constexpr (requires { value.begin(); } && !std::is_same_v<Value, std::string>) {
      text = fmt::format("[{}]", fmt::join(value, ", "));
    }
    fields.push_back({field.name, std::move(text), field.help});
  });
  return fields;
}

}  // namespace ringmaster
