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

// Models are made for a target: where the data have none one that they might have, which nothing
// reads in the end.
void AddTarget(const Wanted& wanted, Columns* columns, Outputs* outputs) {
  if (std::ranges::find(*columns, v1::COLUMN_USE_TARGET, &v1::StoredColumn::use) !=
      columns->end()) {
    return;
  }
  v1::StoredColumn& target = columns->emplace_back();
  target.set_use(v1::COLUMN_USE_TARGET);
  target.set_name("target");
  for (const v1::Layer& loss : outputs->losses) {
    if (loss.inputs_size() > 1) target.set_name(loss.inputs(1));
  }
  if (wanted.classes > 0) {
    target.set_type(v1::ELEMENT_TYPE_INT32);
    target.set_limit(wanted.classes);
    outputs->metrics.Clear();
    return;
  }
  target.set_type(v1::ELEMENT_TYPE_FLOAT32);
  *outputs = {.losses = {}, .metrics = {}, .none = true};
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

// What the loss reads, or its probabilities.
Status AddLossRows(const graph::Output& loss, bool alone, Program* program) {
  const ValueId sum = program->scalars[loss.scalar].value;
  const graph::Node& node =
      program->graph.nodes()[static_cast<size_t>(program->graph.value(sum).producer)];
  const bool classes = node.as<graph::SoftmaxCrossEntropy>() != nullptr;
  const bool yes_or_no = node.as<graph::SigmoidCrossEntropy>() != nullptr;
  const std::string prefix = alone ? "" : loss.name + "_";
  ValueId value = node.inputs[0];
  if (!classes && !yes_or_no) {
    program->rows.push_back({prefix + "values", value});
    return absl::OkStatus();
  }
  const graph::Kind op = classes ? graph::Kind(graph::Softmax{}) : graph::Kind(graph::Sigmoid{});
  const std::string name = prefix + "probabilities";
  RING_ASSIGN_OR_RETURN(
      const auto made,
      graph::AddOp(&program->graph,
                   {.name = name, .kind = op, .inputs = {value}, .float32 = true}));
  program->rows.push_back({name, made[0]});
  return absl::OkStatus();
}

Status AddRows(const Wanted& wanted, Program* program) {
  if (!wanted.layers.empty()) return AddLayers(wanted, program);
  std::vector<graph::Output> losses;
  std::ranges::copy_if(
      program->outputs, std::back_inserter(losses),
      [](const graph::Output& output) { return output.role == graph::Output::Role::kLoss; });
  for (const graph::Output& loss : losses) {
    RING_RETURN_IF_ERROR(AddLossRows(loss, losses.size() == 1, program));
  }
  if (!losses.empty()) return absl::OkStatus();
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

StatusOr<v1::Graph> BuildPredictions(const v1::Model& model, Columns columns, Outputs outputs,
                                     const Wanted& wanted) {
  AddTarget(wanted, &columns, &outputs);
  RING_ASSIGN_OR_RETURN(Program program, BuildForward(model, columns, outputs));
  RING_RETURN_IF_ERROR(AddRows(wanted, &program));
  Prune(&program);
  v1::Graph message = graph::ToMessage(program);
  FreezeAll(&message);
  const auto again = graph::FromMessage(message, graph::Mode::kTraining, 1);
  if (!again.ok()) return Annotate(again.status(), "predict");
  return message;
}

}  // namespace ringmaster::model
