// The attributes of ops, and other options, as messages, by their Fields(). Thread-safe (free
// functions).
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <string>
#include <tuple>
#include <type_traits>

#include "common/graph/ops/op_list.h"
#include "common/status.h"
#include "ringmaster/v1/graph.pb.h"

namespace ringmaster::graph {

// No whole number of an attribute is larger, so that no sum or product of a few wraps.
inline constexpr int64_t kMaxAttribute = (int64_t{1} << 31) - 1;

inline constexpr int kMaxListed = 1024;  // numbers of one attribute

template <typename T>
void SetValue(const T& value, v1::Attribute* attribute) {
  if constexpr (std::same_as<T, bool>) {
    attribute->set_b(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    attribute->set_f(value);
  } else if constexpr (std::is_enum_v<T>) {
    attribute->set_s(Name(value));
  } else if constexpr (std::is_integral_v<T>) {
    attribute->set_i(value);
  } else if constexpr (std::same_as<T, std::string>) {
    attribute->set_s(value);
  } else {
    attribute->mutable_ints()->mutable_values()->Assign(value.begin(), value.end());
  }
}

inline Status CheckWhole(const v1::Attribute& attribute, int64_t value) {
  if (value >= -kMaxAttribute && value <= kMaxAttribute) return absl::OkStatus();
  return InvalidArgument("attribute {}: {} is not in {} to {}", attribute.name(), value,
                         -kMaxAttribute, kMaxAttribute);
}

template <typename T>
Status GetValue(const v1::Attribute& attribute, T* value) {
  const auto expected = [&](const char* what) {
    return InvalidArgument("attribute {}: expected {}", attribute.name(), what);
  };
  if constexpr (std::same_as<T, bool>) {
    if (!attribute.has_b()) return expected("true or false");
    *value = attribute.b();
  } else if constexpr (std::is_floating_point_v<T>) {
    const double f = attribute.f();
    if (!attribute.has_f() || !std::isfinite(f) || (f == 0 && std::signbit(f))) {
      return expected("a finite real number, and not -0");
    }
    *value = f;
  } else if constexpr (std::is_enum_v<T>) {
    // Values of such a type are few, and count from 0.
    for (int number = 0; attribute.has_s() && number < 16; ++number) {
      *value = static_cast<T>(number);
      if (attribute.s() == Name(*value)) return absl::OkStatus();
    }
    return expected("one of its words");
  } else if constexpr (std::is_integral_v<T>) {
    if (!attribute.has_i()) return expected("a whole number");
    RING_RETURN_IF_ERROR(CheckWhole(attribute, attribute.i()));
    *value = attribute.i();
  } else if constexpr (std::same_as<T, std::string>) {
    if (!attribute.has_s()) return expected("a word");
    *value = attribute.s();
  } else {
    if (!attribute.has_ints()) return expected("a list of whole numbers");
    if (attribute.ints().values_size() > kMaxListed) return expected("fewer numbers");
    const auto& values = attribute.ints().values();
    for (const int64_t i : values) RING_RETURN_IF_ERROR(CheckWhole(attribute, i));
    if constexpr (requires { std::tuple_size<T>(); }) {
      if (static_cast<size_t>(values.size()) != value->size()) {
        return InvalidArgument("attribute {}: expected {} numbers, got {}", attribute.name(),
                               value->size(), values.size());
      }
      std::copy(values.begin(), values.end(), value->begin());
    } else {
      value->assign(values.begin(), values.end());
    }
  }
  return absl::OkStatus();
}

// All of them, by name ascending.
template <typename Options>
void WriteAttributes(const Options& options,
                     google::protobuf::RepeatedPtrField<v1::Attribute>* attributes) {
  if constexpr (requires { Options::Fields(); }) {
    ForEachField<Options>([&](const auto& field) {
      v1::Attribute& attribute = *attributes->Add();
      attribute.set_name(field.name);
      SetValue(options.*field.member, &attribute);
    });
    std::sort(attributes->begin(), attributes->end(),
              [](const auto& a, const auto& b) { return a.name() < b.name(); });
  }
}

// Takes those that the struct has. Which there are, and in which order, is not looked at: what is
// written again differs then.
template <typename Options>
Status ReadAttributes(const google::protobuf::RepeatedPtrField<v1::Attribute>& attributes,
                      Options* options) {
  Status status;
  if constexpr (requires { Options::Fields(); }) {
    ForEachField<Options>([&](const auto& field) {
      for (const v1::Attribute& attribute : attributes) {
        if (!status.ok() || attribute.name() != field.name) continue;
        status = GetValue(attribute, &(options->*field.member));
      }
    });
  }
  return status;
}

}  // namespace ringmaster::graph
