// The backend that the shared tests of a binary are about: ops_test, program_test and
// determinism_test are built once for each backend, together with the file that defines these
// functions for it. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "worker/backend/backend.h"

namespace ringmaster::testing {

// As errors call it: CPU.
[[nodiscard]] std::string BackendName();

// Anew, computing as it does by default.
StatusOr<std::unique_ptr<Backend>> MakeBackendUnderTest();

// One way to compute, each of which must be right and repeatable.
struct Way {
  std::string name;  // emulated, 2 threads
  std::shared_ptr<Backend> backend;
  uint32_t threads = 1;
};

// All of them for tensors of that type.
StatusOr<std::vector<Way>> WaysFor(graph::DType compute);

// Thread counts of a core that the backend offers.
[[nodiscard]] std::vector<uint32_t> ThreadCounts();

// The largest relative error (Euclidean norm) of any output of any op on tensors of that type.
[[nodiscard]] double OpTolerance(graph::DType type);

}  // namespace ringmaster::testing
