#include "common/graph/passes/rewrite.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/graph/passes/passes.h"

namespace ringmaster::graph {
namespace {

// Every value that the program names, apart from its graph.
template <typename Visit>
void ForEachRole(Program* program, const Visit& visit) {
  for (Column& column : program->columns) visit(&column.value);
  for (Seed& seed : program->seeds) visit(&seed.value);
  visit(&program->share);
  for (Scalar& scalar : program->scalars) visit(&scalar.value);
  for (Rows& rows : program->rows) visit(&rows.value);
  for (Parameter& parameter : program->parameters) {
    visit(&parameter.value);
    visit(&parameter.gradient);
  }
  for (Parameter& parameter : program->frozen) visit(&parameter.value);
  for (Normalization& normalization : program->normalizations) {
    visit(&normalization.batch_mean);
    visit(&normalization.batch_variance);
    visit(&normalization.moving_mean);
    visit(&normalization.moving_variance);
  }
}

}  // namespace

Rewriter::Rewriter(const Program& program)
    : program_(program), map_(program.graph.values().size(), kNoValue) {}

void Rewriter::CopyFed(ValueId old_id) {
  const Value& value = program_.graph.value(old_id);
  Map(old_id, graph_.AddFed(value.name, value.shape, value.dtype));
}

void Rewriter::CopyNode(const Node& node) {
  Node copy = node;
  for (ValueId& input : copy.inputs) input = At(input);
  std::vector<Value> outputs;
  for (ValueId output : node.outputs) outputs.push_back(program_.graph.value(output));
  const std::vector<ValueId> made = graph_.AddNode(std::move(copy), std::move(outputs));
  for (size_t i = 0; i < made.size(); ++i) Map(node.outputs[i], made[i]);
}

ValueId Rewriter::At(ValueId old_id) const {
  return old_id == kNoValue ? kNoValue : map_[static_cast<size_t>(old_id)];
}

void Rewriter::Finish(Program* program) && {
  ForEachRole(program, [this](ValueId* id) { *id = At(*id); });
  program->graph = std::move(graph_);
}

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
