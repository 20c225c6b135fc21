#include "tests/worker/backend/backend_under_test.h"
#include "tests/worker/backend/op_program.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace ringmaster::testing {
namespace {

using cpu::Bf16Arithmetic;

StatusOr<Way> MakeWay(Bf16Arithmetic arithmetic, uint32_t threads) {
  RING_ASSIGN_OR_RETURN(std::shared_ptr<Backend> backend, cpu::CpuBackend::Create(arithmetic));
  const char* bf16 = arithmetic == Bf16Arithmetic::kNative ? "native" : "emulated";
  return Way{std::string(bf16) + ", " + std::to_string(threads) + " threads", backend, threads};
}

}  // namespace

std::string BackendName() { return "CPU"; }

StatusOr<std::unique_ptr<Backend>> MakeBackendUnderTest() { return MakeBackend("cpu"); }

StatusOr<std::vector<Way>> WaysFor(graph::DType compute) {
  const bool bfloat16 = compute == graph::DType::kBFloat16;
  RING_ASSIGN_OR_RETURN(const Way first, MakeWay(Bf16Arithmetic::kNative, 1));
  RING_ASSIGN_OR_RETURN(const Way second, bfloat16 ? MakeWay(Bf16Arithmetic::kEmulated, 1)
                                                   : MakeWay(Bf16Arithmetic::kNative, 2));
  return std::vector<Way>{first, second};
}

std::vector<uint32_t> ThreadCounts() { return {1, 2}; }

double OpTolerance(graph::DType type) { return UsualTolerance(type); }

}  // namespace ringmaster::testing
