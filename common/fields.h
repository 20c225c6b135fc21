// The options of a struct, described once: the name that each has wherever people or programs meet
// it, and what it is for. A default is the member's own initializer. Constants; thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ringmaster {

// What a number may be; of a list, each of its numbers.
struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false, below_max = false;  // an end itself is not allowed
  std::array<int64_t, 8> choices = {};        // instead: the first so many of these
  size_t choice_count = 0;

  [[nodiscard]] constexpr bool Has(double value) const {
    for (size_t i = 0; i < choice_count; ++i) {
      if (static_cast<double>(choices[i]) == value) return true;
    }
    if (choice_count > 0) return false;
    return (above_min ? value > min : value >= min) && (below_max ? value < max : value <= max);
  }
};
[[nodiscard]] constexpr Range AtLeast(double min) { return {.min = min}; }
[[nodiscard]] constexpr Range Above(double min) { return {.min = min, .above_min = true}; }
[[nodiscard]] constexpr Range Between(double min, double max) { return {.min = min, .max = max}; }
template <typename... Numbers>
[[nodiscard]] constexpr Range OneOf(Numbers... numbers) {
  return {.choices = {numbers...}, .choice_count = sizeof...(numbers)};
}
inline constexpr Range kRate = {.min = 0, .max = 1, .below_max = true};

// `1 to 4096`, `at least 0, under 1`, `11, 13, 16, 19`; empty: any number.
[[nodiscard]] inline std::string RangeWords(const Range& range) {
  if (range.choice_count > 0) {
    return fmt::format(
        "{}", fmt::join(range.choices.begin(), range.choices.begin() + range.choice_count, ", "));
  }
  const bool below = range.max < std::numeric_limits<double>::infinity();
  const bool from = range.min > -std::numeric_limits<double>::infinity();
  if (from && below && !range.above_min && !range.below_max) {
    return fmt::format("{} to {}", range.min, range.max);
  }
  std::string words;
  if (from) words = fmt::format("{} {}", range.above_min ? "above" : "at least", range.min);
  if (from && below) words += ", ";
  if (below) words += fmt::format("{} {}", range.below_max ? "under" : "at most", range.max);
  return words;
}

template <typename S, typename T>
struct Field {
  const char* name;
  T S::*member;
  const char* help;
  Range range = {};  // a default out of it is none: the option is required
};
template <typename S, typename T>
Field(const char*, T S::*, const char*) -> Field<S, T>;
template <typename S, typename T>
Field(const char*, T S::*, const char*, Range) -> Field<S, T>;

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

// Whether numbers are in the range, each of a list; whatever has no numbers is.
template <typename Value>
[[nodiscard]] bool IsIn(const Range& range, const Value& value) {
  if constexpr (std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool>) {
    return range.Has(static_cast<double>(value));
  } else if constexpr (requires { NumbersOf(value); }) {
    return IsIn(range, NumbersOf(value));
  } else if constexpr (requires { value.begin(); } && !std::is_same_v<Value, std::string>) {
    for (const auto& number : value) {
      if (!IsIn(range, number)) return false;
    }
  }
  return true;
}

// What values of a type are, in words. A type of its own has TypeWords() when it is no enum.
template <typename Value>
[[nodiscard]] std::string TypeOf(const Value& value) {
  if constexpr (std::is_same_v<Value, bool>) {
    return "true or false";
  } else if constexpr (std::is_enum_v<Value>) {
    std::vector<std::string> words;  // values are few, and count from 0
    for (int i = 0; i < 16; ++i) {
      const std::string word = Name(static_cast<Value>(i));
      if (std::ranges::find(words, word) != words.end()) break;
      words.push_back(word);
    }
    return fmt::format("{}", fmt::join(words, ", "));
  } else if constexpr (requires { TypeWords(value); }) {
    return TypeWords(value);
  } else if constexpr (std::is_integral_v<Value>) {
    return "whole number";
  } else if constexpr (std::is_floating_point_v<Value>) {
    return "number";
  } else if constexpr (std::is_same_v<Value, std::string>) {
    return "word";
  } else if constexpr (requires { std::tuple_size<Value>(); }) {
    return fmt::format("{} whole numbers", value.size());
  } else {
    return "list of whole numbers";
  }
}

struct FieldDescription {
  std::string name, type, range, default_value, help;
  bool required = false;
};
// A default as in a job file: lists in brackets.
template <typename S>
[[nodiscard]] std::vector<FieldDescription> DescribeFields(const S& defaults = {}) {
  std::vector<FieldDescription> fields;
  if constexpr (requires { S::Fields(); }) {
    ForEachField<S>([&](const auto& field) {
      const auto& value = defaults.*field.member;
      using Value = std::decay_t<decltype(value)>;
      std::string text = PrintValue(value);
      if constexpr (requires { value.begin(); } && !std::is_same_v<Value, std::string>) {
        text = fmt::format("[{}]", fmt::join(value, ", "));
      }
      fields.push_back({field.name, TypeOf(value), RangeWords(field.range), std::move(text),
                        field.help, !IsIn(field.range, value)});
      if (fields.back().required) fields.back().default_value.clear();
    });
  }
  return fields;
}
// `whole number, at least 1`.
[[nodiscard]] inline std::string ValueWords(const FieldDescription& field) {
  return field.range.empty() ? field.type : field.type + ", " + field.range;
}

}  // namespace ringmaster
