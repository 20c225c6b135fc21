// What tests that need a GPU begin with. Main thread: they assert.
#pragma once

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <memory>
#include <utility>

#include "worker/backend/cuda/cuda_backend.h"

namespace ringmaster::testing {

// nullptr, and one line that says why, where there is no GPU: the test then passes as it is. Fails
// where there is one that does not work.
inline std::unique_ptr<cuda::CudaBackend> CudaBackendOrSkip(
    cuda::Replay replay = cuda::Replay::kGraph) {
  auto backend = cuda::CudaBackend::Create(replay);
  if (backend.ok()) return *std::move(backend);
  if (!absl::IsUnavailable(backend.status())) FAIL(Message(backend.status()));
  fmt::print("skipped: {}\n", Message(backend.status()));
  return nullptr;
}

}  // namespace ringmaster::testing
