#include "common/model/predictions.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "common/graph/message/message.h"
#include "common/graph/ops/op_table.h"
#include "common/graph/passes/passes.h"
#include "common/model/fine_tuning.h"
#include "common/text.h"

namespace ringmaster::model {
namespace {

using graph::Program;
using graph::ValueId;

bool HasTarget(const Columns& columns) {
  return std::ranges::find(columns, v1::COLUMN_USE_TARGET, &v1::StoredColumn::use) != columns.end();
}

// Models are made for a target: where the data have none one that they might have, which nothing
// reads.
v1::StoredColumn TargetOf(const Wanted& wanted, const Outputs& outputs) {
  v1::StoredColumn target;
  target.set_use(v1::COLUMN_USE_TARGET);
  target.set_name("target");
  const auto named = std::ranges::find_if(
      outputs.losses, [](const v1::Layer& loss) { return loss.inputs_size() > 1; });
  if (named != outputs.losses.end()) target.set_name(named->inputs(1));
  target.set_type(wanted.classes > 0 ? v1::ELEMENT_TYPE_INT32 : v1::ELEMENT_TYPE_FLOAT32);
  target.set_limit(wanted.classes);
  return target;
}

// A row's name, of a layer's.
std::string WordOf(const std::string& name) {
  constexpr size_t kMost = 64;
  std::string word;
  for (const char c : name) {
    const char lower = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    const bool fits = (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9');
    word += fits ? lower : '_';
  }
  if (word.empty() || word[0] < 'a' || word[0] > 'z') word.insert(0, "y");
  return word.substr(0, kMost);
}

Status AddLayers(const Wanted& wanted, Program* program) {
  for (const std::string& layer : wanted.layers) {
    const auto& values = program->graph.values();
    const auto found = std::ranges::find_if(values, [&](const graph::Value& value) {
      return value.name == layer && value.producer != graph::kFed;
    });
    if (found == values.end()) {
      std::vector<std::string> known;
      for (const graph::Node& node : program->graph.nodes()) known.push_back(node.name);
      const std::string guess = Nearest(layer, known);
      return InvalidArgument("predict.outputs: the model has no layer \"{}\"; {}",
                             OneLine(layer, 200),
                             guess.empty() ? "`ringctl model show` lists them"
                                           : fmt::format("did you mean \"{}\"?", guess));
    }
    program->rows.push_back({WordOf(layer), static_cast<ValueId>(found - values.begin())});
  }
  return absl::OkStatus();
}

// Of data with targets.
std::vector<Said> SaidIn(const Program& program) {
  std::vector<Said> said;
  for (const graph::Output& output : program.outputs) {
    if (output.role != graph::Output::Role::kLoss) continue;
    const ValueId sum = program.scalars[output.scalar].value;
    const graph::Node& node = program.graph.node(program.graph.value(sum).producer);
    said.push_back({output.name, node.op(), node.inputs[0]});
  }
  return said;
}

// `wanted`, or the next one that no layer has.
std::string FreeName(const Program& program, std::string wanted) {
  const auto taken = [&] {
    return std::ranges::count(program.graph.values(), wanted, &graph::Value::name) > 0 ||
           std::ranges::count(program.graph.nodes(), wanted, &graph::Node::name) > 0;
  };
  while (taken()) wanted += '_';
  return wanted;
}

// What the loss reads, or its probabilities.
Status AddLossRows(const Said& said, bool alone, Program* program) {
  const bool classes = said.kind == graph::SoftmaxCrossEntropy::kTraits.name;
  const bool yes_or_no = said.kind == graph::SigmoidCrossEntropy::kTraits.name;
  const std::string prefix = alone ? "" : said.loss + "_";
  if (!classes && !yes_or_no) {
    program->rows.push_back({prefix + "values", said.value});
    return absl::OkStatus();
  }
  const graph::Kind op = classes ? graph::Kind(graph::Softmax{}) : graph::Kind(graph::Sigmoid{});
  const std::string name = prefix + "probabilities";
  RING_ASSIGN_OR_RETURN(
      const auto made,
      graph::AddOp(
          &program->graph,
          {.name = FreeName(*program, name), .kind = op, .inputs = {said.value}, .float32 = true}));
  program->rows.push_back({name, made[0]});
  return absl::OkStatus();
}

Status AddRows(const Wanted& wanted, const std::vector<Said>& said, Program* program) {
  if (!wanted.layers.empty()) return AddLayers(wanted, program);
  for (const Said& each : said) {
    RING_RETURN_IF_ERROR(AddLossRows(each, said.size() == 1, program));
  }
  if (!said.empty()) return absl::OkStatus();
  program->rows.push_back({"values", program->graph.nodes().back().outputs[0]});
  return absl::OkStatus();
}

// Nothing but what the rows need.
void Prune(Program* program) {
  program->outputs.clear();
  program->scalars.clear();
  program->normalizations.clear();  // statistics of batches; what is left is in its nodes
  graph::RemoveDeadNodes(program);
  std::set<ValueId> read;
  for (const graph::Node& node : program->graph.nodes()) {
    read.insert(node.inputs.begin(), node.inputs.end());
  }
  const auto unread = [&](const auto& fed) { return !read.contains(fed.value); };
  std::erase_if(program->columns, unread);
  std::erase_if(program->parameters, unread);
}

}  // namespace

StatusOr<v1::Graph> BuildPredictions(const v1::Model& model, Columns columns,
                                     const Outputs& outputs, const Wanted& wanted) {
  std::vector<Said> said;
  const bool compares = HasTarget(columns);
  if (!compares) columns.push_back(TargetOf(wanted, outputs));
  RING_ASSIGN_OR_RETURN(Program program,
                        BuildForward(model, columns, outputs, compares ? nullptr : &said));
  if (compares) said = SaidIn(program);
  RING_RETURN_IF_ERROR(AddRows(wanted, said, &program));
  Prune(&program);
  v1::Graph message = graph::ToMessage(program);
  FreezeAll(&message);
  const auto again = graph::FromMessage(message, graph::Mode::kTraining, 1);
  if (!again.ok()) return Annotate(again.status(), "predict");
  return message;
}

}  // namespace ringmaster::model
