#include <dlfcn.h>
#include <spdlog/spdlog.h>

#include "worker/backend/backend.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/pjrt/pjrt_backend.h"
#include "worker/backend/pjrt/tpus.h"
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

StatusOr<std::unique_ptr<Backend>> MakeCuda(const BackendOptions& options) {
  RING_RETURN_IF_ERROR(CheckDriver());
  auto backend = LoadBackend(PluginPaths("cuda"), options);
  if (!absl::IsNotFound(backend.status())) return backend;
  return FailedPrecondition(
      "{}: this build has no CUDA backend; configure it where nvcc is (docs/gpu.md), or name the "
      "library with RINGMASTER_CUDA_LIBRARY",
      Message(backend.status()));
}

StatusOr<std::unique_ptr<Backend>> MakePjrt(const BackendOptions& options) {
  pjrt::PluginOptions plugin;
  plugin.path = options.plugin.empty() ? pjrt::TpuLibrary() : options.plugin;
  plugin.memory_fraction = options.memory_fraction;
  plugin.start_limit = options.start_limit;
  plugin.compile_limit = options.compile_limit;
  plugin.run_limit = options.run_limit;
  return pjrt::PjrtBackend::Create(plugin);
}

StatusOr<std::unique_ptr<Backend>> MakeBest(const BackendOptions& options) {
  // Without a TPU its library is not asked: it would look for one elsewhere, for minutes.
  if (pjrt::CountTpus() > 0) {
    auto tpu = MakePjrt(options);
    if (tpu.ok()) return tpu;
    spdlog::warn("no use of this host's TPUs: {}", Message(tpu.status()));
  }
  auto cuda = MakeCuda(options);
  if (cuda.ok()) return cuda;
  // With a driver and a device somebody expects more than the CPU.
  const auto level = absl::IsUnavailable(cuda.status()) ? spdlog::level::info : spdlog::level::warn;
  spdlog::log(level, "computing on the CPU: {}", Message(cuda.status()));
  return cpu::CpuBackend::Create();
}

}  // namespace

StatusOr<std::unique_ptr<Backend>> MakeBackend(const std::string& kind,
                                               const BackendOptions& options) {
  if (kind == "cpu") return cpu::CpuBackend::Create();
  if (kind == "cuda") return MakeCuda(options);
  if (kind == "pjrt") return MakePjrt(options);
  if (kind == "auto") return MakeBest(options);
  return InvalidArgument("there is no backend named {}; expected auto, cpu, cuda or pjrt", kind);
}

}  // namespace ringmaster
