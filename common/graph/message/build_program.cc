#include <utility>

#include "common/graph/autodiff.h"
#include "common/graph/message/message.h"
#include "common/graph/passes/passes.h"

namespace ringmaster::graph {
namespace {

// The type of what a policy may narrow.
StatusOr<DType> ComputeType(v1::Policy policy) {
  if (policy == v1::POLICY_FLOAT32) return DType::kFloat32;
  if (policy == v1::POLICY_MIXED_BFLOAT16) return DType::kBFloat16;
  if (policy == v1::POLICY_MIXED_FLOAT16) return DType::kFloat16;
  return InvalidArgument("policy {} is none of float32, mixed_bfloat16 and mixed_float16",
                         static_cast<int>(policy));
}

// Losses of classes get the share as one more input.
void MixLabels(Program* program) {
  program->share = program->graph.AddFed("label_share", {}, DType::kFloat32);
  for (size_t i = 0; i < program->graph.nodes().size(); ++i) {
    Node& node = program->graph.mutable_node(static_cast<NodeId>(i));
    if (node.as<SoftmaxCrossEntropy>() != nullptr) node.inputs.push_back(program->share);
  }
}

}  // namespace

StatusOr<Program> BuildProgram(const v1::Graph& message, const ProgramOptions& options) {
  if (IsScript(message)) return ScriptProgram(message, options.mode, options.samples);
  RING_ASSIGN_OR_RETURN(const DType compute, ComputeType(options.policy));
  RING_ASSIGN_OR_RETURN(Program program, FromMessage(message, options.mode, options.samples));
  if (options.mode == Mode::kTraining) {
    if (options.labels == Labels::kMixed) MixLabels(&program);
    RING_RETURN_IF_ERROR(Differentiate(&program));
  }
  RING_RETURN_IF_ERROR(ApplyPolicy(&program, compute));
  FuseActivations(&program);
  RemoveDeadNodes(&program);
  if (options.memory.rematerialize()) Rematerialize(&program);
  return program;
}

}  // namespace ringmaster::graph
