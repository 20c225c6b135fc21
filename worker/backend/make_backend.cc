#include <dlfcn.h>
#include <spdlog/spdlog.h>

#include "worker/backend/backend.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/plugin.h"

namespace ringmaster {
namespace {

// A host without a driver is spared the libraries of CUDA, which take a second and a gigabyte.
Status CheckDriver() {
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr) return absl::OkStatus();
  return Error(absl::StatusCode::kUnavailable,
               "this host has no NVIDIA driver (no libcuda.so.1); where there is a GPU, install "
               "one, or give the container its GPUs: `nvidia-smi` must list them");
}

StatusOr<std::unique_ptr<Backend>> MakeCuda() {
  RING_RETURN_IF_ERROR(CheckDriver());
  auto backend = LoadBackend(PluginPaths("cuda"));
  if (!absl::IsNotFound(backend.status())) return backend;
  return FailedPrecondition(
      "{}: this build has no CUDA backend; configure it where nvcc is (docs/gpu.md), or name the "
      "library with RINGMASTER_CUDA_LIBRARY",
      Message(backend.status()));
}

StatusOr<std::unique_ptr<Backend>> MakeBest() {
  auto cuda = MakeCuda();
  if (cuda.ok()) return cuda;
  // With a driver and a device somebody expects more than the CPU.
  const auto level = absl::IsUnavailable(cuda.status()) ? spdlog::level::info : spdlog::level::warn;
  spdlog::log(level, "computing on the CPU: {}", Message(cuda.status()));
  return cpu::CpuBackend::Create();
}

}  // namespace

StatusOr<std::unique_ptr<Backend>> MakeBackend(const std::string& kind) {
  if (kind == "cpu") return cpu::CpuBackend::Create();
  if (kind == "cuda") return MakeCuda();
  if (kind == "auto") return MakeBest();
  return InvalidArgument("there is no backend named {}; expected auto, cpu or cuda", kind);
}

}  // namespace ringmaster
