#include "common/graph/passes/passes.h"

#include <utility>
#include <vector>

#include "common/graph/passes/rewrite.h"

namespace ringmaster::graph {
namespace {

// Where a node keeps its activation; nullptr when it cannot have one.
Activation* ActivationOf(Node* node) {
  if (auto* conv2d = node->as<Conv2d>()) return &conv2d->activation;
  if (auto* dense = node->as<Dense>()) return &dense->activation;
  if (auto* norm = node->as<BatchNorm>()) return &norm->activation;
  if (auto* norm = node->as<BatchNormInference>()) return &norm->activation;
  return nullptr;
}

// Works on a copy of the nodes, in old value ids, and writes the program once at the end.
class FusionPass {
 public:
  explicit FusionPass(Program* program)
      : program_(program),
        nodes_(program->graph.nodes()),
        dropped_(nodes_.size(), false),
        readers_(program->graph.values().size(), 0),
        stands_for_(program->graph.values().size()) {
    for (const Node& node : nodes_) {
      for (ValueId input : node.inputs) ++readers_[static_cast<size_t>(input)];
    }
    for (ValueId result : Results(*program)) ++readers_[static_cast<size_t>(result)];
    for (size_t i = 0; i < stands_for_.size(); ++i) stands_for_[i] = static_cast<ValueId>(i);
  }

  void Run() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].as<Relu>() != nullptr) FoldForward(i);
    }
    for (Node& node : nodes_) {
      if (node.as<BatchNormGradient>() != nullptr) FoldGradient(&node);
    }
    Write();
  }

 private:
  [[nodiscard]] NodeId producer(ValueId id) const { return program_->graph.value(id).producer; }
  [[nodiscard]] bool ReadOnce(ValueId id) const { return readers_[static_cast<size_t>(id)] == 1; }

  void FoldForward(size_t relu) {
    const ValueId x = nodes_[relu].inputs[0];
    if (producer(x) == kFed || !ReadOnce(x)) return;
    Node& before = nodes_[static_cast<size_t>(producer(x))];
    Activation* activation = ActivationOf(&before);
    if (activation == nullptr || *activation != Activation::kNone || x != before.outputs[0]) return;
    *activation = Activation::kRelu;
    stands_for_[static_cast<size_t>(nodes_[relu].outputs[0])] = x;
    dropped_[relu] = true;
  }

  void FoldGradient(Node* gradient) {
    const ValueId dx = gradient->inputs[1];
    const NodeId statistics = producer(gradient->inputs[2]);
    if (producer(dx) == kFed || statistics == kFed || !ReadOnce(dx)) return;
    const Node& mask = nodes_[static_cast<size_t>(producer(dx))];
    const Node& forward = nodes_[static_cast<size_t>(statistics)];
    if (mask.as<ReluGradient>() == nullptr || forward.as<BatchNorm>() == nullptr ||
        stands_for_[static_cast<size_t>(mask.inputs[0])] != forward.outputs[0]) {
      return;
    }
    gradient->as<BatchNormGradient>()->activation = Activation::kRelu;
    gradient->inputs[1] = mask.inputs[1];
    const auto& norm = *forward.as<BatchNorm>();
    if (norm.center) gradient->inputs.push_back(forward.inputs[norm.scale ? 2 : 1]);
    dropped_[static_cast<size_t>(producer(dx))] = true;
  }

  void Write() {
    Rewriter rewriter(*program_);
    const std::vector<Value>& values = program_->graph.values();
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i].producer == kFed) rewriter.CopyFed(static_cast<ValueId>(i));
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (dropped_[i]) continue;
      for (ValueId& input : nodes_[i].inputs) input = stands_for_[static_cast<size_t>(input)];
      rewriter.CopyNode(nodes_[i]);
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (stands_for_[i] != static_cast<ValueId>(i)) {
        rewriter.Map(static_cast<ValueId>(i), rewriter.At(stands_for_[i]));
      }
    }
    std::move(rewriter).Finish(program_);
  }

  Program* program_;
  std::vector<Node> nodes_;
  std::vector<bool> dropped_;        // by node
  std::vector<int> readers_;         // by value; being a result counts as one
  std::vector<ValueId> stands_for_;  // by value: what took its place
};

}  // namespace

void FuseActivations(Program* program) { FusionPass(program).Run(); }

}  // namespace ringmaster::graph
