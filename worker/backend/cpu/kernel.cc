#include "worker/backend/cpu/kernel.h"

#include "worker/backend/shard_io.h"

namespace ringmaster::cpu {
namespace {

// The parameter that the operand is, or is a cast of: one that layers of several types share.
std::optional<uint32_t> ParameterBehind(const graph::Program& program, graph::ValueId operand) {
  const graph::NodeId producer = program.graph.value(operand).producer;
  if (producer == graph::kFed) return ParameterOf(program, operand);
  const graph::Node& node = program.graph.node(producer);
  return node.as<graph::Cast>() == nullptr ? std::nullopt : ParameterOf(program, node.inputs[0]);
}

}  // namespace

Status BindContext::UseLayout(size_t i, const dnnl::memory::desc& desc) {
  const std::optional<uint32_t> parameter = ParameterBehind(program, node.inputs[i]);
  if (!parameter) {
    return Error(absl::StatusCode::kUnimplemented,
                 "{} ({}): input {} ({}) must be a parameter: the CPU backend keeps such operands "
                 "in layouts of its own",
                 node.name, node.op(), i, input(i).name);
  }
  RING_ASSIGN_OR_RETURN(copies[i], weights.Copy(*parameter, input(i).dtype, desc));
  return absl::OkStatus();
}

}  // namespace ringmaster::cpu
