// Runs a graph in float64, node by node, with the kernels of the op table: the oracle of every
// backend. Thread-safe (free functions). It is slow on purpose: no blocking, no threads.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/graph/ops/op_table.h"
#include "common/graph/program.h"

namespace ringmaster::graph {

// kNone: float64 throughout, casts change nothing. kDeclared: each value is rounded to its own type
// (half to even) once it is computed or fed, as a backend with float64 arithmetic would store it.
enum class Rounding : uint8_t { kNone, kDeclared };

using ReferenceFeeds = std::map<ValueId, std::vector<double>>;

// All values by ValueId. Every fed value that a node reads must be in `feeds` with its exact number
// of elements, and keys.samples must have a row for each sample where a dropout is in the graph:
// INVALID_ARGUMENT names what is missing.
[[nodiscard]] StatusOr<std::vector<std::vector<double>>> RunReference(
    const Graph& graph, const ReferenceFeeds& feeds, const RandomKeys& keys,
    Rounding rounding = Rounding::kNone);

// To the nearest value of that type, half to even. int32 is left alone.
[[nodiscard]] double Round(double value, DType dtype);

}  // namespace ringmaster::graph
