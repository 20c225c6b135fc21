// What the backend says of GPUs, and what where there is none.
#include "worker/backend/cuda/device/device.h"

#include <catch2/catch.hpp>

#include "tests/worker/backend/cuda/gpu.h"
#include "tests/worker/backend/model_program.h"

namespace ringmaster::cuda {

using Catch::Contains;

TEST_CASE("CUDA device: without a GPU one line says what is missing") {
  const auto devices = FindDevices();
  if (devices.ok()) {
    fmt::print("skipped: there is a GPU\n");
    return;
  }
  CHECK(absl::IsUnavailable(devices.status()));
  const std::string message = Message(devices.status());
  CHECK_THAT(message, Contains("driver"));
  CHECK(message.find('\n') == std::string::npos);
  CHECK(absl::IsUnavailable(CudaBackend::Create().status()));
}

TEST_CASE("CUDA device: libraries that compute are named with their versions") {
  const auto libraries = ComputeLibraries();
  CHECK_THAT(libraries.at("cuDNN"), Catch::Matches("[0-9]+\\.[0-9]+\\.[0-9]+"));
  CHECK_THAT(libraries.at("cuBLASLt"), Catch::Matches("[0-9]+\\.[0-9]+\\.[0-9]+"));
  CHECK_THAT(libraries.at("CUDA"), Catch::Matches("[0-9]+\\.[0-9]+"));
  CHECK(libraries.contains("CUDA driver"));
}

TEST_CASE("CUDA backend: numerics class and profile name the GPU") {
  const auto backend = testing::CudaBackendOrSkip();
  if (backend == nullptr) return;
  const v1::NumericsClass numerics = backend->numerics_class(3);
  CHECK(numerics.backend() == "cuda");
  CHECK_THAT(numerics.device_model(), Contains("NVIDIA") && Contains(" multiprocessors"));
  CHECK_THAT(numerics.instruction_set(), Catch::Matches("sm_[0-9]+"));
  CHECK(numerics.threads_per_core() == 1);
  CHECK(numerics.compute_id().empty());
  CHECK(numerics.libraries().contains("cuDNN"));
  const v1::DeviceProfile profile = backend->device_profile();
  CHECK(profile.kind() == "cuda");
  CHECK(profile.alignment() == 256);
  CHECK(profile.reserved() > 0);
  const auto devices = FindDevices();
  REQUIRE(devices.ok());
  CHECK(profile.memory_per_core() + profile.reserved() == devices->front().memory_bytes);
  CHECK(backend->devices() >= 1);
}

TEST_CASE("CUDA backend: each GPU has figures, with or without the management library") {
  const auto backend = testing::CudaBackendOrSkip();
  if (backend == nullptr) return;
  const auto facts = FindDevices();
  REQUIRE(facts.ok());
  CHECK_THAT(facts->front().pci_bus_id,
             Catch::Matches("[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\\.[0-9]"));
  const auto devices = backend->figures();
  REQUIRE(devices.size() == backend->devices());
  CHECK(devices[0].kind() == "cuda");
  CHECK_THAT(devices[0].name(), Contains("NVIDIA"));
  CHECK(devices[0].memory_total() > 0);
}

TEST_CASE("CUDA backend: GPUs and CPUs that do not exist are refused") {
  const auto backend = testing::CudaBackendOrSkip();
  if (backend == nullptr) return;
  CHECK_THAT(Message(backend->MakeCore({.name = "core0", .device = 1000}).status()),
             Catch::StartsWith("core0: there is no GPU 1000; this host has "));
  CHECK(Message(backend->MakeCore({.name = "core0", .cpus = {1000000}}).status()) ==
        "core0: there is no CPU 1000000");
}

}  // namespace ringmaster::cuda
