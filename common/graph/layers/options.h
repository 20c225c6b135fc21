// Options of layers, of models and of ops as messages, by their Fields(), as people write them: one
// number may stand for several, a whole one for a real one. What is not written has its default.
// The exact form that a graph has of them is common/graph/message/attributes.h. Thread-safe (free
// functions).
#pragma once

#include <algorithm>
#include <concepts>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "common/graph/layers/layer.h"
#include "common/status.h"
#include "ringmaster/v1/graph.pb.h"

namespace ringmaster::graph::layers {

using Attributes = google::protobuf::RepeatedPtrField<v1::Attribute>;

inline constexpr int kMostNumbers = 1024;  // of one option
// No whole number of an option is larger, so that no sum or product of a few wraps.
[[nodiscard]] constexpr bool IsSmall(int64_t number) {
  return number > -(int64_t{1} << 31) && number < int64_t{1} << 31;
}

[[nodiscard]] constexpr bool IsFinite(double number) {
  constexpr double kMost = std::numeric_limits<double>::max();
  return number >= -kMost && number <= kMost;
}

// A value as a job file has it: `3`, `[1, 2]`, `{normal: 0.02}`, a word in quotes.
[[nodiscard]] std::string Describe(const v1::Attribute& attribute);

// `unknown option "filter"; did you mean "filters"?`
[[nodiscard]] Status UnknownOption(const std::string& option,
                                   const std::vector<FieldDescription>& options);

// `filters: expected whole number, at least 1, got 0`.
[[nodiscard]] Status WrongOption(const FieldDescription& option, const std::string& got);

// The numbers of one, or of a list; nothing when it is neither.
[[nodiscard]] std::optional<std::vector<int64_t>> WholeNumbers(const v1::Attribute& attribute);

// False: it is none of the type's values.
[[nodiscard]] bool Take(const v1::Attribute& attribute, Pair* value);
[[nodiscard]] bool Take(const v1::Attribute& attribute, std::optional<Pair>* value);
[[nodiscard]] bool Take(const v1::Attribute& attribute, Padding* value);
[[nodiscard]] bool Take(const v1::Attribute& attribute, Initial* value);
[[nodiscard]] bool Take(const v1::Attribute& attribute, Activation* value);
template <typename T>
[[nodiscard]] bool Take(const v1::Attribute& attribute, T* value) {
  if constexpr (std::same_as<T, bool>) {
    if (attribute.has_b()) *value = attribute.b();
    return attribute.has_b();
  } else if constexpr (std::is_enum_v<T>) {
    for (int number = 0; attribute.has_s() && number < 16; ++number) {
      *value = static_cast<T>(number);
      if (attribute.s() == Name(*value)) return true;
    }
    return false;
  } else if constexpr (std::is_integral_v<T>) {
    *value = attribute.i();
    return attribute.has_i() && IsSmall(*value);
  } else if constexpr (std::is_floating_point_v<T>) {
    // The sum turns -0 into 0.
    *value = attribute.has_i() ? static_cast<double>(attribute.i()) : attribute.f() + 0.0;
    return (attribute.has_i() || attribute.has_f()) && IsFinite(*value);
  } else if constexpr (std::same_as<T, std::string>) {
    *value = attribute.s();
    return attribute.has_s();
  } else {
    const auto numbers = WholeNumbers(attribute);
    if (!numbers) return false;
    if constexpr (requires { std::tuple_size<T>(); }) {
      if (numbers->size() == 1) value->fill(numbers->front());
      if (numbers->size() == value->size()) std::ranges::copy(*numbers, value->begin());
      return numbers->size() == 1 || numbers->size() == value->size();
    } else {
      *value = *numbers;
      return true;
    }
  }
}

void Put(const Pair& value, v1::Attribute* attribute);
void Put(const std::optional<Pair>& value, v1::Attribute* attribute);
void Put(const Padding& value, v1::Attribute* attribute);
void Put(const Initial& value, v1::Attribute* attribute);
void Put(const Activation& value, v1::Attribute* attribute);
template <typename T>
void Put(const T& value, v1::Attribute* attribute) {
  if constexpr (std::same_as<T, bool>) {
    attribute->set_b(value);
  } else if constexpr (std::is_enum_v<T>) {
    attribute->set_s(Name(value));
  } else if constexpr (std::is_integral_v<T>) {
    attribute->set_i(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    attribute->set_f(value);
  } else if constexpr (std::same_as<T, std::string>) {
    attribute->set_s(value);
  } else {
    attribute->mutable_ints()->mutable_values()->Assign(value.begin(), value.end());
  }
}

template <typename S, typename Visit>
void ForEachOption(const Visit& visit) {
  if constexpr (requires { S::Fields(); }) ForEachField<S>(visit);
}

// Takes all that are written; then every option is in its range, and what is required is there.
template <typename S>
[[nodiscard]] Status ReadOptions(const Attributes& attributes, S* options) {
  const auto described = DescribeFields(*options);
  const auto named = [&](const std::string& name) {
    return std::ranges::find(described, name, &FieldDescription::name);
  };
  for (int i = 0; i < attributes.size(); ++i) {
    const std::string& name = attributes[i].name();
    if (named(name) == described.end()) return UnknownOption(name, described);
    for (int j = 0; j < i; ++j) {
      if (attributes[j].name() == name) return InvalidArgument("{} is there twice", name);
    }
  }
  Status status;
  ForEachOption<S>([&](const auto& field) {
    if (!status.ok()) return;
    const auto at = std::ranges::find(attributes, field.name, &v1::Attribute::name);
    auto& value = options->*field.member;
    const bool taken = at == attributes.end() || Take(*at, &value);
    if (taken && IsIn(field.range, value)) return;
    status = at != attributes.end()
                 ? WrongOption(*named(field.name), Describe(*at))
                 : InvalidArgument("option {} is missing: {}", field.name, field.help);
  });
  return status;
}

// An option of S by itself, in its own type; nothing when it is not one of the option's values.
template <typename S>
[[nodiscard]] std::optional<v1::Attribute> OwnForm(const v1::Attribute& given) {
  std::optional<v1::Attribute> own;
  ForEachOption<S>([&](const auto& field) {
    if (given.name() != field.name) return;
    S options;
    auto& value = options.*field.member;
    if (!Take(given, &value) || !IsIn(field.range, value)) return;
    own.emplace().set_name(field.name);
    Put(value, &*own);
  });
  return own;
}

// Those that differ from `defaults`, in their order; all of them where there are none.
template <typename S>
void WriteOptions(const S& options, const S* defaults, Attributes* attributes) {
  ForEachOption<S>([&](const auto& field) {
    const auto& value = options.*field.member;
    if (defaults != nullptr && value == defaults->*field.member) return;
    attributes->Add()->set_name(field.name);
    Put(value, &*attributes->rbegin());
  });
}

}  // namespace ringmaster::graph::layers
