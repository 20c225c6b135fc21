// Initial values of parameters: counter-based Philox keyed by (seed, tensor, name), element index
// in canonical order, correctly rounded arithmetic only. Thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "common/graph/program.h"

namespace ringmaster::graph {

// The inverse of the normal distribution, by correctly rounded operations alone: the same bits on
// every machine, because no function of a library is called. Thread-safe (free functions).

// The x that a standard normal variable is below with probability p, 0 < p < 1: algorithm AS 241,
// PPND16 (Wichura, "The percentage points of the normal distribution", 1988), about 1 part in 1e16.
[[nodiscard]] double NormalQuantile(double p);

// Fills `values` (the parameter's elements in canonical layout). `tensor` is its canonical number.
void Initialize(const Parameter& parameter, uint32_t tensor, uint64_t seed,
                std::span<float> values);

}  // namespace ringmaster::graph
