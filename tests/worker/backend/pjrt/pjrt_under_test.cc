// The plugin double, or the plugin of this host that RINGMASTER_PJRT_PLUGIN names
// (scripts/pjrt-check).
#include <cstdlib>

#include "tests/worker/backend/backend_under_test.h"
#include "tests/worker/backend/op_program.h"
#include "tests/worker/backend/pjrt/small_step.h"

namespace ringmaster::testing {

std::string BackendName() { return "PJRT"; }

StatusOr<std::unique_ptr<Backend>> MakeBackendUnderTest() {
  const DoubleIsTold told("devices=2,layout=column");
  pjrt::PluginOptions options = DoubleOptions();
  if (const char* const named = std::getenv("RINGMASTER_PJRT_PLUGIN")) options = {.path = named};
  RING_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, pjrt::PjrtBackend::Create(options));
  return backend;
}

StatusOr<std::vector<Way>> WaysFor(graph::DType) {
  RING_ASSIGN_OR_RETURN(std::shared_ptr<Backend> backend, MakeBackendUnderTest());
  return std::vector<Way>{{"plugin double", backend, 1}};
}

std::vector<uint32_t> ThreadCounts() { return {1}; }

double OpTolerance(graph::DType type) { return UsualTolerance(type); }

}  // namespace ringmaster::testing
