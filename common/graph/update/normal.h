// The inverse of the normal distribution, by correctly rounded operations alone: the same bits on
// every machine, because no function of a library is called. Thread-safe (free functions).
#pragma once

namespace ringmaster::graph {

// The x that a standard normal variable is below with probability p, 0 < p < 1: algorithm AS 241,
// PPND16 (Wichura, "The percentage points of the normal distribution", 1988), about 1 part in 1e16.
[[nodiscard]] double NormalQuantile(double p);

}  // namespace ringmaster::graph
