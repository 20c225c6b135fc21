#include "common/graph/autodiff.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "common/graph/ops/op_table.h"

namespace ringmaster::graph {
namespace {

// One differentiation: which values depend on a parameter, and the gradient that each has so far.
class Differentiator {
 public:
  explicit Differentiator(Program* program) : program_(program), graph_(&program->graph) {}

  Status Run() {
    const auto forward_nodes = static_cast<NodeId>(graph_->nodes().size());
    MarkDependents();
    AddSeeds();
    gradients_.assign(graph_->values().size(), kNoValue);
    size_t loss = 0;
    for (const Output& output : program_->outputs) {
      if (output.role != Output::Role::kLoss) continue;
      const ValueId sum = program_->scalars[output.scalar].value;
      gradients_[static_cast<size_t>(sum)] = program_->seeds[loss++].value;
    }
    for (NodeId id = forward_nodes - 1; id >= 0; --id) RING_RETURN_IF_ERROR(Visit(id));
    RING_RETURN_IF_ERROR(CollectGradients());
    SetGradientOrder();
    return absl::OkStatus();
  }

 private:
  void AddSeeds() {
    for (const Output& output : program_->outputs) {
      if (output.role != Output::Role::kLoss) continue;
      const ValueId seed = graph_->AddFed(output.name + "_seed", {}, DType::kFloat32);
      program_->seeds.push_back({seed, static_cast<float>(output.weight)});
    }
  }

  void MarkDependents() {
    dependent_.assign(graph_->values().size(), false);
    for (const Parameter& parameter : program_->parameters) {
      dependent_[static_cast<size_t>(parameter.value)] = true;
    }
    for (const Node& node : graph_->nodes()) {
      const bool any = std::any_of(node.inputs.begin(), node.inputs.end(),
                                   [&](ValueId id) { return dependent_[static_cast<size_t>(id)]; });
      if (!any) continue;
      for (ValueId output : node.outputs) dependent_[static_cast<size_t>(output)] = true;
    }
  }

  Status Visit(NodeId id) {
    GradientRequest request = {graph_, graph_->node(id), {}, {}};
    bool wanted = false;
    bool flows = false;
    for (ValueId input : request.node.inputs) {
      request.wanted.push_back(dependent_[static_cast<size_t>(input)]);
      wanted = wanted || request.wanted.back();
    }
    for (ValueId output : request.node.outputs) {
      request.output_gradients.push_back(gradients_[static_cast<size_t>(output)]);
      flows = flows || request.output_gradients.back() != kNoValue;
    }
    if (!wanted || !flows) return absl::OkStatus();
    const GradientRule rule = OpOf(request.node).gradient;
    if (rule == nullptr) {
      return InvalidArgument("{} ({}) has no gradient rule", request.node.name, request.node.op());
    }
    const auto first = static_cast<NodeId>(graph_->nodes().size());
    RING_ASSIGN_OR_RETURN(const std::vector<ValueId> gradients, rule(request));
    if (request.node.float32) KeepFloat32From(first);
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i] == kNoValue || !request.wanted[i]) continue;
      RING_RETURN_IF_ERROR(Contribute(request.node.inputs[i], gradients[i]));
    }
    return absl::OkStatus();
  }

  void KeepFloat32From(NodeId first) {
    for (auto id = first; id < static_cast<NodeId>(graph_->nodes().size()); ++id) {
      graph_->mutable_node(id).float32 = true;
    }
  }

  // Gradient fan-in: a value that is read twice has the sum; that of a parameter, which several
  // layers share then, is float32 as its gradient is.
  Status Contribute(ValueId value, ValueId gradient) {
    ValueId& sum = gradients_[static_cast<size_t>(value)];
    if (sum == kNoValue) {
      sum = gradient;
      return absl::OkStatus();
    }
    Node add = {graph_->value(value).name + "/gradient_sum", graph::Add{}, {sum, gradient}};
    add.float32 = graph_->value(value).producer == kFed;
    RING_ASSIGN_OR_RETURN(const auto made, AddOp(graph_, std::move(add)));
    sum = made[0];
    return absl::OkStatus();
  }

  Status CollectGradients() {
    for (Parameter& parameter : program_->parameters) {
      parameter.gradient = gradients_[static_cast<size_t>(parameter.value)];
      if (parameter.gradient == kNoValue) {
        return InvalidArgument("the loss does not depend on parameter {}", parameter.name);
      }
      graph_->mutable_value(parameter.gradient).name = parameter.name + "/gradient";
    }
    return absl::OkStatus();
  }

  void SetGradientOrder() {
    std::vector<std::tuple<NodeId, ValueId, uint32_t>> order;
    for (uint32_t i = 0; i < program_->parameters.size(); ++i) {
      const ValueId gradient = program_->parameters[i].gradient;
      order.emplace_back(graph_->value(gradient).producer, gradient, i);
    }
    std::sort(order.begin(), order.end());
    program_->gradient_order.clear();
    for (const auto& entry : order) program_->gradient_order.push_back(std::get<2>(entry));
  }

  Program* program_;
  Graph* graph_;
  std::vector<bool> dependent_;     // by forward value
  std::vector<ValueId> gradients_;  // by forward value
};

}  // namespace

Status Differentiate(Program* program) {
  if (program->mode != Mode::kTraining) {
    return InvalidArgument("an inference program has no gradients");
  }
  return Differentiator(program).Run();
}

}  // namespace ringmaster::graph
