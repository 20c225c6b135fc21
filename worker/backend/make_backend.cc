#include "worker/backend/backend.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace ringmaster {

StatusOr<std::unique_ptr<Backend>> MakeBackend(const std::string& kind) {
  if (kind == "cpu") return cpu::CpuBackend::Create();
  return InvalidArgument("there is no backend named {}; this build has: cpu", kind);
}

}  // namespace ringmaster
