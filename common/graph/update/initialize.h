// Initial values of parameters: counter-based Philox keyed by (seed, tensor, name), element index
// in canonical order, correctly rounded arithmetic only. Thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "common/graph/program.h"

namespace ringmaster::graph {

// Fills `values` (the parameter's elements in canonical layout). `tensor` is its canonical number.
void Initialize(const Parameter& parameter, uint32_t tensor, uint64_t seed,
                std::span<float> values);

}  // namespace ringmaster::graph
