#include "common/graph/passes/passes.h"

#include <map>
#include <utility>
#include <vector>

#include "common/graph/ops/op_table.h"
#include "common/graph/passes/rewrite.h"

namespace ringmaster::graph {
namespace {

class PolicyPass {
 public:
  PolicyPass(Program* program, DType compute)
      : program_(program), compute_(compute), rewriter_(*program) {}

  Status Run() {
    CopyFedValues();
    for (const Node& node : program_->graph.nodes()) RING_RETURN_IF_ERROR(Rewrite(node));
    for (const Parameter& parameter : program_->parameters) {
      if (parameter.gradient == kNoValue) continue;
      RING_ASSIGN_OR_RETURN(const ValueId gradient,
                            Cast(rewriter_.At(parameter.gradient), DType::kFloat32));
      rewriter_.Map(parameter.gradient, gradient);
    }
    for (const Rows& rows : program_->rows) {
      RING_ASSIGN_OR_RETURN(const ValueId value, Cast(rewriter_.At(rows.value), DType::kFloat32));
      rewriter_.Map(rows.value, value);
    }
    std::move(rewriter_).Finish(program_);
    return absl::OkStatus();
  }

 private:
  // The type in which the node reads its input i, which has type `now`.
  DType InputType(const Node& node, size_t i, DType now) const {
    if (now == DType::kInt32) return now;
    const bool flagged =
        node.float32 || (i < 32 && (TraitsOf(node.kind).float32_inputs >> i & 1) != 0);
    return flagged ? DType::kFloat32 : compute_;
  }

  void CopyFedValues() {
    std::vector<bool> read_as_float32(program_->graph.values().size(), false);
    for (const Node& node : program_->graph.nodes()) {
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const ValueId input = node.inputs[i];
        const DType type = InputType(node, i, program_->graph.value(input).dtype);
        if (type == DType::kFloat32) read_as_float32[static_cast<size_t>(input)] = true;
      }
    }
    for (size_t i = 0; i < program_->graph.values().size(); ++i) {
      if (program_->graph.values()[i].producer == kFed) rewriter_.CopyFed(static_cast<ValueId>(i));
    }
    for (const auto* parameters : {&program_->parameters, &program_->frozen}) {
      for (const Parameter& parameter : *parameters) {
        if (read_as_float32[static_cast<size_t>(parameter.value)]) continue;
        rewriter_.graph().mutable_value(rewriter_.At(parameter.value)).dtype = compute_;
      }
    }
  }

  Status Rewrite(const Node& node) {
    Node copy = node;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId input = rewriter_.At(node.inputs[i]);
      const DType type = InputType(node, i, rewriter_.graph().value(input).dtype);
      RING_ASSIGN_OR_RETURN(copy.inputs[i], Cast(input, type));
    }
    std::vector<TensorType> wanted;
    for (ValueId output : node.outputs) {
      const Value& value = program_->graph.value(output);
      wanted.push_back({value.shape, value.dtype});
    }
    RING_ASSIGN_OR_RETURN(const auto made,
                          AddOp(&rewriter_.graph(), std::move(copy), std::move(wanted)));
    for (size_t i = 0; i < made.size(); ++i) {
      rewriter_.graph().mutable_value(made[i]).name = program_->graph.value(node.outputs[i]).name;
      rewriter_.Map(node.outputs[i], made[i]);
    }
    return absl::OkStatus();
  }

  // The value in that type: itself, or one cast that all its readers share.
  StatusOr<ValueId> Cast(ValueId value, DType dtype) {
    if (rewriter_.graph().value(value).dtype == dtype) return value;
    const auto known = casts_.find({value, dtype});
    if (known != casts_.end()) return known->second;
    const std::string name = rewriter_.graph().value(value).name + "/" + Name(dtype);
    RING_ASSIGN_OR_RETURN(const auto made,
                          AddOp(&rewriter_.graph(), {name, graph::Cast{}, {value}}, {{{}, dtype}}));
    casts_[{value, dtype}] = made[0];
    return made[0];
  }

  Program* program_;
  DType compute_;
  Rewriter rewriter_;
  std::map<std::pair<ValueId, DType>, ValueId> casts_;
};

}  // namespace

Status ApplyPolicy(Program* program, DType compute) {
  if (compute == DType::kFloat32) return absl::OkStatus();
  if (compute == DType::kInt32) return InvalidArgument("int32 is not a compute type");
  return PolicyPass(program, compute).Run();
}

}  // namespace ringmaster::graph
