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

// A batch_norm, training or inference; nullptr: another op.
BatchNormAttributes* NormOf(Node* node) {
  if (auto* norm = node->as<BatchNorm>()) return norm;
  return node->as<BatchNormInference>();
}

// Works on a copy of the nodes, in old value ids, and writes the program once at the end.
class FusionPass {
 public:
  explicit FusionPass(Program* program)
      : program_(program),
        nodes_(program->graph.nodes()),
        order_(nodes_.size()),
        readers_(program->graph.values().size(), 0),
        stands_for_(program->graph.values().size()) {
    for (size_t i = 0; i < nodes_.size(); ++i) order_[i] = static_cast<NodeId>(i);
    for (const Node& node : nodes_) {
      for (ValueId input : node.inputs) ++readers_[static_cast<size_t>(input)];
    }
    for (ValueId result : Results(*program)) ++readers_[static_cast<size_t>(result)];
    for (size_t i = 0; i < stands_for_.size(); ++i) stands_for_[i] = static_cast<ValueId>(i);
  }

  void Run() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].as<Add>() != nullptr) FoldAdd(static_cast<NodeId>(i));
      if (nodes_[i].as<Relu>() != nullptr) FoldRelu(static_cast<NodeId>(i));
      if (nodes_[i].as<Relu6>() != nullptr) FoldInNorm(static_cast<NodeId>(i), Activation::kRelu6);
      if (nodes_[i].as<Swish>() != nullptr) FoldInNorm(static_cast<NodeId>(i), Activation::kSwish);
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].as<BatchNormGradient>() != nullptr) FoldGradient(static_cast<NodeId>(i));
    }
    Write();
  }

 private:
  [[nodiscard]] Node& at(NodeId id) { return nodes_[static_cast<size_t>(id)]; }
  [[nodiscard]] NodeId producer(ValueId id) const { return program_->graph.value(id).producer; }
  [[nodiscard]] ValueId now(ValueId id) const { return stands_for_[static_cast<size_t>(id)]; }
  [[nodiscard]] bool ReadOnce(ValueId id) const { return readers_[static_cast<size_t>(id)] == 1; }
  [[nodiscard]] bool SameType(ValueId a, ValueId b) const {
    const Value &one = program_->graph.value(a), &other = program_->graph.value(b);
    return one.shape == other.shape && one.dtype == other.dtype;
  }
  void Drop(NodeId id) { order_[static_cast<size_t>(id)] = kDropped; }
  // The node takes the place of another one, which is dropped.
  void Move(NodeId id, NodeId to) {
    Drop(id);
    order_[static_cast<size_t>(to)] = id;
  }
  void Replace(ValueId by, ValueId old) { stands_for_[static_cast<size_t>(old)] = by; }

  // The node whose first output that operand is, and which nobody else reads; kFed: none.
  [[nodiscard]] NodeId OnlyReads(ValueId operand) {
    const NodeId before = producer(now(operand));
    if (before == kFed || !ReadOnce(operand) || now(operand) != at(before).outputs[0]) return kFed;
    return before;
  }

  // Whether an operand of an add is a batch_norm that may take the other one as its residual.
  [[nodiscard]] bool TakesResidual(NodeId id) {
    if (id == kFed) return false;
    const BatchNormAttributes* norm = NormOf(&at(id));
    return norm != nullptr && norm->scale && norm->center && !norm->residual &&
           norm->activation == Activation::kNone;
  }

  // Of two that may, the one that comes later in the program.
  void FoldAdd(NodeId add) {
    const std::vector<ValueId> operands = at(add).inputs;
    if (!SameType(operands[0], operands[1])) return;
    NodeId taker = kFed;
    ValueId residual = kNoValue;
    for (const size_t i : {0, 1}) {
      const NodeId id = OnlyReads(operands[i]);
      if (!TakesResidual(id) || id < taker) continue;
      taker = id;
      residual = operands[1 - i];
    }
    if (taker == kFed) return;
    NormOf(&at(taker))->residual = true;
    at(taker).inputs.push_back(residual);
    Replace(at(taker).outputs[0], at(add).outputs[0]);
    Move(taker, add);
  }

  void FoldRelu(NodeId relu) {
    const NodeId before = OnlyReads(at(relu).inputs[0]);
    if (before != kFed) Fold(relu, Activation::kRelu, before, ActivationOf(&at(before)));
  }

  // What a batch_norm alone takes. Not a swish whose gradient reads its input: that one reads it,
  // too.
  void FoldInNorm(NodeId id, Activation activation) {
    const NodeId before = OnlyReads(at(id).inputs[0]);
    if (before == kFed) return;
    BatchNormAttributes* norm = NormOf(&at(before));
    if (norm == nullptr || norm->residual) return;
    Fold(id, activation, before, &norm->activation);
  }

  // `kept` is where the node before keeps its activation; nullptr: it cannot have one.
  void Fold(NodeId id, Activation activation, NodeId before, Activation* kept) {
    if (kept == nullptr || *kept != Activation::kNone) return;
    *kept = activation;
    Replace(at(before).outputs[0], at(id).outputs[0]);
    Drop(id);
  }

  // Forward, a swish whose gradient that batch_norm's will take over, so that nobody is left who
  // reads what lies between the two. False: somebody else does, or the swish's gradient has another
  // reader.
  bool FoldSwish(NodeId gradient, NodeId before) {
    const ValueId z = at(before).outputs[0];
    const NodeId swish = producer(at(gradient).inputs[1]);
    if (at(gradient).inputs[0] != z || readers_[static_cast<size_t>(z)] != 2) return false;
    if (swish == kFed || at(swish).inputs[0] != z || at(swish).as<Swish>() == nullptr) return false;
    if (!ReadOnce(at(gradient).outputs[0])) return false;
    Fold(swish, Activation::kSwish, before, &at(before).as<BatchNorm>()->activation);
    return true;
  }

  // Where a batch_norm's gradient reads what passes its activation.
  void FoldGradient(NodeId id) {
    const NodeId mask = producer(at(id).inputs[1]);
    const NodeId statistics = producer(at(id).inputs[2]);
    if (mask == kFed || statistics == kFed) return;
    const auto* norm = at(statistics).as<BatchNorm>();
    if (norm == nullptr) return;
    if (at(mask).as<UnaryGradient<Swish>>() != nullptr) {
      if (!FoldSwish(mask, statistics)) return;
    } else {
      const bool masks =
          at(mask).as<ReluGradient>() != nullptr || at(mask).as<UnaryGradient<Relu6>>() != nullptr;
      if (!masks || now(at(mask).inputs[0]) != at(statistics).outputs[0]) return;
    }
    const bool residual = norm->residual;
    if (!residual && !ReadOnce(at(id).inputs[1])) return;
    auto* attributes = at(id).as<BatchNormGradient>();
    attributes->activation = norm->activation;
    attributes->residual = residual;
    at(id).inputs[1] = at(mask).inputs.back();
    if (norm->center) at(id).inputs.push_back(at(statistics).inputs[norm->scale ? 2 : 1]);
    if (!residual) return Drop(mask);
    at(id).inputs.push_back(at(mask).inputs[0]);
    at(id).outputs.push_back(at(mask).outputs[0]);
    Move(id, mask);
    TakeAddends(&at(id));
  }

  // dy as two addends, where nobody else wants their sum.
  void TakeAddends(Node* gradient) {
    const ValueId dy = gradient->inputs[1];
    const NodeId sum = producer(dy);
    if (sum == kFed || at(sum).as<Add>() == nullptr || !ReadOnce(dy)) return;
    const std::vector<ValueId>& addends = at(sum).inputs;
    if (!SameType(addends[0], addends[1])) return;
    gradient->inputs[1] = addends[0];
    gradient->inputs.push_back(addends[1]);
    Drop(sum);
  }

  void Write() {
    Rewriter rewriter(*program_);
    const std::vector<Value>& values = program_->graph.values();
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i].producer == kFed) rewriter.CopyFed(static_cast<ValueId>(i));
    }
    for (const NodeId id : order_) {
      if (id == kDropped) continue;
      for (ValueId& input : at(id).inputs) input = now(input);
      rewriter.CopyNode(at(id));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (stands_for_[i] != static_cast<ValueId>(i)) {
        rewriter.Map(static_cast<ValueId>(i), rewriter.At(stands_for_[i]));
      }
    }
    std::move(rewriter).Finish(program_);
  }

  static constexpr NodeId kDropped = -1;

  Program* program_;
  std::vector<Node> nodes_;
  std::vector<NodeId> order_;        // by place: which node runs there
  std::vector<int> readers_;         // by value; being a result counts as one
  std::vector<ValueId> stands_for_;  // by value: what took its place
};

}  // namespace

void FuseActivations(Program* program) { FusionPass(program).Run(); }

}  // namespace ringmaster::graph
