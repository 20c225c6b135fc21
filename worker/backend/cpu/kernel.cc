#include "worker/backend/cpu/kernel.h"

#include "worker/backend/shard_io.h"

namespace ringmaster::cpu {

Status BindContext::UseLayout(size_t i, const dnnl::memory::desc& desc) {
  const std::optional<uint32_t> parameter = ParameterOf(program, node.inputs[i]);
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
