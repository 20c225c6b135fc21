// reshape: the same elements; nothing to do where the plan lets output and input share their bytes.
#include <cstring>

#include "worker/backend/cpu/kernel_table.h"

namespace ringmaster::cpu {

StatusOr<std::unique_ptr<Kernel>> BindReshape(BindContext& context) {
  const graph::Value& y = context.output(0);
  const size_t bytes = static_cast<size_t>(graph::Elements(y.shape)) * graph::ByteSize(y.dtype);
  return MakeLoop([bytes](const Operands& operands, const RunKeys&) {
    if (operands.inputs[0] != operands.outputs[0]) {
      std::memcpy(operands.outputs[0], operands.inputs[0], bytes);
    }
  });
}

}  // namespace ringmaster::cpu
