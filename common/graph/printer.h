// A graph as text, one line a node, for tests, logs and people. Thread-safe (free functions).
#pragma once

#include <string>

#include "common/graph/program.h"

namespace ringmaster::graph {

// One line a node: `conv1 (8, 32, 32, 96) float32 = conv2d(images, conv1/kernel) stride=1x1 ...`.
// Attributes that have their default are left out.
[[nodiscard]] std::string Print(const Graph& graph);

// The fed values and parameters first, then the nodes, then the results.
[[nodiscard]] std::string Print(const Program& program);

}  // namespace ringmaster::graph
