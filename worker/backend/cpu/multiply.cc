// multiply: y = a b, element by element.
#include "worker/backend/cpu/broadcast.h"
#include "worker/backend/cpu/kernel_table.h"

namespace ringmaster::cpu {

StatusOr<std::unique_ptr<Kernel>> BindMultiply(BindContext& context) {
  return MakeBroadcast(context, [](float a, float b) { return a * b; });
}

}  // namespace ringmaster::cpu
