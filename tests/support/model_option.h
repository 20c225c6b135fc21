// Models as tests write them. Thread-safe (free functions).
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "ringmaster/v1/job.pb.h"

namespace ringmaster::testing {

// Whole numbers, real ones, true and false, words, or lists of whole numbers.
template <typename T>
void SetOption(const std::string& name, const T& value, v1::Model* model) {
  v1::Attribute* option = nullptr;
  for (v1::Attribute& known : *model->mutable_options()) {
    if (known.name() == name) option = &known;
  }
  if (option == nullptr) option = model->add_options();
  option->set_name(name);
  if constexpr (std::is_same_v<T, bool>) {
    option->set_b(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    option->set_f(value);
  } else if constexpr (std::is_integral_v<T>) {
    option->set_i(value);
  } else if constexpr (std::is_convertible_v<T, std::string>) {
    option->set_s(value);
  } else {
    option->mutable_ints()->mutable_values()->Assign(value.begin(), value.end());
  }
}

inline void SetHidden(const std::vector<int64_t>& units, v1::Model* model) {
  SetOption("hidden", units, model);
}

}  // namespace ringmaster::testing
