// Ops, and forms of ops, that have no CUDA kernel yet: the only list. Binding a case of them says
// UNIMPLEMENTED (emulated_ops_test.cc), and the sweeps of this backend leave it out. Thread-safe
// (free functions).
#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

#include "tests/common/graph/cases/table.h"

namespace ringmaster::testing {

inline constexpr std::string_view kNotYetOnCuda[] = {
    "average_pool",
    "average_pool_gradient",
    "concat",
    "global_max_pool",
    "multiply",
    "pad",
    "reduce_to",
    "slice",
    "split",
};

inline bool NotYetOnCuda(const graph::Kind& kind) {
  return std::find(std::begin(kNotYetOnCuda), std::end(kNotYetOnCuda),
                   graph::TraitsOf(kind).name) != std::end(kNotYetOnCuda);
}

inline bool NotYetOnCuda(const graph::OpCase& test) {
  // A node only for its attributes.
  const graph::Node node = {"", test.kind, {}};
  if (node.as<graph::Add>() != nullptr) return test.inputs[0].shape != test.inputs[1].shape;
  if (const auto* dropout = node.attributes<graph::DropoutAttributes>()) {
    return dropout->per_sample;
  }
  return NotYetOnCuda(test.kind);
}

}  // namespace ringmaster::testing
