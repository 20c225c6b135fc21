// What a node costs to compute, whatever kernels really do. Thread-safe (free functions).
#pragma once

#include "common/graph/program.h"

namespace ringmaster::graph {

// Of convolutions and dense layers, and of their gradients, each element of the result meeting its
// filter's or unit's whole kernel: windows counted whole where they hang over the border. 0 of any
// other op.
[[nodiscard]] double MultiplyAdds(const Graph& graph, const Node& node);

// In operations: two for each multiply-add, and eight for each byte that goes to or comes from
// memory, which is about what a core does in that time. 0 where nothing moves.
[[nodiscard]] double Operations(const Graph& graph, const Node& node);
[[nodiscard]] double Operations(const Graph& graph);

}  // namespace ringmaster::graph
