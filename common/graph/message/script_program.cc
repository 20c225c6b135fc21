// Graphs of scripts: parameters and outputs of which the program's ops are not ours. One node of op
// `script` stands for all that a child computes (docs/core_protocol.md).
#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "common/graph/message/field_checks.h"
#include "common/graph/message/message.h"

namespace ringmaster::graph {
namespace {

constexpr const char* kOp = "script";
constexpr const char* kGroups = "groups";
const std::string kCounter = "counter ", kAlias = "alias ";  // and the name
constexpr int kMaxTensors = 16'384;

// As modules call them: model.layers.0.self_attn.q_proj.weight.
bool IsTensorName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxName && std::ranges::all_of(name, IsNameCharacter);
}

void SetText(v1::Node* node, const char* name, const std::string& text) {
  v1::Attribute& attribute = *node->add_attributes();
  attribute.set_name(name);
  attribute.set_s(text);
}

}  // namespace

bool IsScript(const v1::Graph& message) {
  return message.nodes_size() == 1 && message.nodes(0).op() == kOp;
}

v1::Graph ScriptGraph(const v1::ScriptFacts& facts, const std::string& content) {
  v1::Graph graph;
  graph.set_version(kGraphVersion);
  for (const v1::ScriptTensor& tensor : facts.tensors()) {
    v1::Parameter& parameter = *graph.add_parameters();
    parameter.set_name(tensor.name());
    *parameter.mutable_shape() = tensor.shape();
    parameter.mutable_initializer()->set_distribution(v1::DISTRIBUTION_CONSTANT);
    parameter.set_trainable(true);
  }
  v1::Node& node = *graph.add_nodes();
  node.set_name(kOp);
  node.set_op(kOp);
  node.set_version(1);
  SetText(&node, "content", content);
  SetText(&node, "frozen", facts.frozen_sha256());
  v1::Attribute& groups = *node.add_attributes();
  groups.set_name(kGroups);
  groups.set_i(facts.groups_size());
  SetText(&node, "initial", facts.initial_sha256());
  for (int i = 0; i < facts.counters_size(); ++i) {
    v1::Attribute& counter = *node.add_attributes();
    counter.set_name(kCounter + facts.counters(i));
    counter.set_i(i < facts.counter_starts_size() ? facts.counter_starts(i) : 0);
  }
  const std::map<std::string, std::string> aliases(facts.aliases().begin(), facts.aliases().end());
  for (const auto& [name, tensor] : aliases) SetText(&node, (kAlias + name).c_str(), tensor);
  v1::Output& loss = *graph.add_outputs();
  loss.set_name(kMinimized);
  loss.set_value(kOp);
  loss.mutable_loss()->set_weight(1);
  for (const std::string& name : facts.metrics()) {
    v1::Output& output = *graph.add_outputs();
    output.set_name(name);
    output.set_value(kOp);
    output.mutable_measure();
  }
  return graph;
}

StatusOr<Program> ScriptProgram(const v1::Graph& message, Mode mode, int64_t samples) {
  Program program;
  program.mode = mode;
  program.samples = samples;
  if (message.version() != kGraphVersion || message.parameters_size() > kMaxTensors ||
      message.ByteSizeLong() > kMaxGraphBytes || message.columns_size() > 0 ||
      message.statistics_size() > 0 || message.outputs_size() < 1) {
    return InvalidArgument(
        "the graph of a script: expected version {}, at most {} tensors, a loss, "
        "and neither columns nor statistics",
        kGraphVersion, kMaxTensors);
  }
  std::set<std::string> names;
  for (const v1::Parameter& parameter : message.parameters()) {
    if (!IsTensorName(parameter.name()) || !names.insert(parameter.name()).second) {
      return InvalidArgument("the graph of a script: \"{}\" is no name of one tensor",
                             parameter.name().substr(0, kMaxName));
    }
    RING_ASSIGN_OR_RETURN(Shape shape, CheckedShape(parameter.name(), parameter.shape()));
    const ValueId value = program.graph.AddFed(parameter.name(), shape, DType::kFloat32);
    const auto index = static_cast<uint32_t>(program.parameters.size());
    program.parameters.push_back(
        {parameter.name(), std::move(shape), value, kNoValue, Initializer{}, index});
    program.gradient_order.push_back(index);
  }
  for (const v1::Output& output : message.outputs()) {
    const bool loss = output.has_loss();
    if (!IsWord(output.name()) || loss != program.outputs.empty()) {
      return InvalidArgument("the graph of a script: expected one loss, then metrics; got {}",
                             output.name().substr(0, kMaxSegment));
    }
    program.outputs.push_back({.name = output.name(),
                               .role = loss ? Output::Role::kLoss : Output::Role::kMeasure,
                               .scalar = program.scalars.size(),
                               .view = Output::View::kMean,
                               .weight = 1,
                               .lower_is_better = loss});
    program.scalars.push_back({});
  }
  for (const v1::Attribute& attribute : message.nodes(0).attributes()) {
    const std::string& said = attribute.name();
    if (said == kGroups) program.rate_groups = static_cast<uint32_t>(attribute.i());
    const bool counter = said.starts_with(kCounter), alias = said.starts_with(kAlias);
    if (!counter && !alias) continue;
    const std::string name = said.substr((counter ? kCounter : kAlias).size());
    const bool known = counter || names.contains(attribute.s());
    if (!known || !IsTensorName(name) || names.contains(name) || program.counters.contains(name) ||
        program.aliases.contains(name)) {
      return InvalidArgument("the graph of a script: \"{}\" is no {} of its own",
                             said.substr(0, kMaxName),
                             counter ? "counter" : "further name of a tensor");
    }
    if (counter) {
      program.counters[name] = attribute.i();
    } else {
      program.aliases[name] = attribute.s();
    }
  }
  if (program.rate_groups < 1 || program.rate_groups > kMaxRateGroups) {
    return InvalidArgument("the graph of a script: expected 1 to {} groups of parameters, got {}",
                           kMaxRateGroups, program.rate_groups);
  }
  for (uint32_t i = 0; i < 2 * program.rate_groups; ++i)
    program.scalars.push_back({.counts = true});
  return program;
}

}  // namespace ringmaster::graph
