#include "common/graph/passes/passes.h"

#include <algorithm>
#include <vector>

#include "common/graph/passes/rewrite.h"

namespace ringmaster::graph {

void RemoveDeadNodes(Program* program) {
  const Graph& graph = program->graph;
  std::vector<bool> needed(graph.values().size(), false);
  for (ValueId result : Results(*program)) needed[static_cast<size_t>(result)] = true;
  std::vector<bool> live(graph.nodes().size(), false);
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    live[i] = std::any_of(node.outputs.begin(), node.outputs.end(),
                          [&](ValueId id) { return needed[static_cast<size_t>(id)]; });
    if (!live[i]) continue;
    for (ValueId input : node.inputs) needed[static_cast<size_t>(input)] = true;
  }
  Rewriter rewriter(*program);
  for (size_t i = 0; i < graph.values().size(); ++i) {
    if (graph.values()[i].producer == kFed) rewriter.CopyFed(static_cast<ValueId>(i));
  }
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    if (live[i]) rewriter.CopyNode(graph.nodes()[i]);
  }
  std::move(rewriter).Finish(program);
}

}  // namespace ringmaster::graph
