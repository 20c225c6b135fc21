#include "worker/backend/plugin_entry.h"

#include <cstdlib>
#include <string>
#include <utility>

#include "worker/backend/cuda/compute_id.h"
#include "worker/backend/cuda/cuda_backend.h"

namespace {

using ringmaster::StatusOr;
using ringmaster::cuda::Replay;

// A switch for whoever looks for a kernel that fails; the bits do not depend on it.
StatusOr<Replay> ReplayOfEnvironment() {
  constexpr char kVariable[] = "RINGMASTER_CUDA_REPLAY";
  const char* const text = std::getenv(kVariable);
  if (text == nullptr || std::string(text) == "graph") return Replay::kGraph;
  if (std::string(text) == "kernels") return Replay::kKernels;
  return ringmaster::InvalidArgument("{}: expected graph or kernels, got '{}'", kVariable, text);
}

StatusOr<std::unique_ptr<ringmaster::Backend>> Make(const ringmaster::BackendOptions& options) {
  RING_ASSIGN_OR_RETURN(const Replay replay, ReplayOfEnvironment());
  return ringmaster::cuda::CudaBackend::Create(replay, ringmaster::kCudaComputeId, options);
}

}  // namespace

const char* ringmaster_backend_compute_id() { return ringmaster::kCudaComputeId; }

ringmaster::Backend* ringmaster_make_backend(const ringmaster::BackendOptions& options,
                                             ringmaster::Status* status) {
  auto backend = Make(options);
  *status = backend.status();
  return backend.ok() ? (*std::move(backend)).release() : nullptr;
}
