// Where there is no GPU the binary says so in one line and ends with what ctest takes for skipped.
#define CATCH_CONFIG_EXTERNAL_INTERFACES  // listeners
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>

#include "tests/worker/backend/backend_under_test.h"

namespace ringmaster::testing {
namespace {

constexpr int kSkipped = 77;  // SKIP_RETURN_CODE of CMakeLists.txt

class NeedsGpu final : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;
  void testRunStarting(const Catch::TestRunInfo& run) override {
    TestEventListenerBase::testRunStarting(run);
    const Status status = MakeBackend("cuda").status();
    // Anything else than a missing device is for the tests to fail with.
    if (!absl::IsUnavailable(status)) return;
    std::printf("skipped, nothing was tested: %s\n", Message(status).c_str());
    std::fflush(stdout);
    std::_Exit(kSkipped);
  }
};
CATCH_REGISTER_LISTENER(NeedsGpu)

}  // namespace

std::string BackendName() { return "CUDA"; }

StatusOr<std::unique_ptr<Backend>> MakeBackendUnderTest() { return MakeBackend("cuda"); }

StatusOr<std::vector<Way>> WaysFor(graph::DType) {
  RING_ASSIGN_OR_RETURN(std::shared_ptr<Backend> backend, MakeBackend("cuda"));
  return std::vector<Way>{{"1 stream", backend, 1}};
}

std::vector<uint32_t> ThreadCounts() { return {1}; }

double OpTolerance(graph::DType type) { return graph::ByteSize(type) == 2 ? 1e-2 : 1e-5; }

}  // namespace ringmaster::testing
