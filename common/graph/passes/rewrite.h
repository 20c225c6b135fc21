// Rebuilds a program's graph node by node: what every pass is written with. Thread-compatible;
// lives as long as one pass. Values that a pass neither copies nor maps are gone afterwards.
#pragma once

#include <vector>

#include "common/graph/program.h"

namespace ringmaster::graph {

class Rewriter {
 public:
  explicit Rewriter(const Program& program);

  // The new graph, to append to.
  Graph& graph() { return graph_; }

  // Copies a fed value; a node with its outputs, its inputs replaced by their new ids.
  void CopyFed(ValueId old_id);
  void CopyNode(const Node& node);

  // From now on the old value is that new one.
  void Map(ValueId old_id, ValueId new_id) { map_[static_cast<size_t>(old_id)] = new_id; }
  // The new id; kNoValue for kNoValue and for what is gone.
  [[nodiscard]] ValueId At(ValueId old_id) const;

  // Puts the new graph into the program and renumbers every value that the program names.
  void Finish(Program* program) &&;

 private:
  const Program& program_;
  Graph graph_;
  std::vector<ValueId> map_;  // old id -> new id
};

}  // namespace ringmaster::graph
