#include "worker/backend/cuda/device/nvml.h"

#include <dlfcn.h>

#include <array>
#include <utility>

namespace ringmaster::cuda {
namespace {

// The part of NVML's binary interface that is used here, from NVIDIA's NVML API reference: it comes
// with the driver, its header with the toolkit only.
using Return = int;
using GpuHandle = void*;
constexpr Return kSuccess = 0;
constexpr Return kNotFound = 6;
constexpr int kTemperatureOfGpu = 0;
constexpr size_t kNameBytes = 96;  // NVML_DEVICE_NAME_V2_BUFFER_SIZE

Status Unavailable(const std::string& text) { return Status(absl::StatusCode::kUnavailable, text); }

}  // namespace

struct Nvml::Functions {
  struct Memory {
    unsigned long long total = 0;
    unsigned long long free = 0;
    unsigned long long used = 0;
  };

  struct Utilization {
    unsigned gpu = 0;
    unsigned memory = 0;
  };

  Return (*init)() = nullptr;
  Return (*shutdown)() = nullptr;
  const char* (*error_string)(Return) = nullptr;
  Return (*handle)(const char*, GpuHandle*) = nullptr;
  Return (*name)(GpuHandle, char*, unsigned) = nullptr;
  Return (*memory)(GpuHandle, Memory*) = nullptr;
  Return (*utilization)(GpuHandle, Utilization*) = nullptr;
  Return (*temperature)(GpuHandle, int, unsigned*) = nullptr;
  Return (*power)(GpuHandle, unsigned*) = nullptr;
  Return (*power_limit)(GpuHandle, unsigned*) = nullptr;

  // The name of the first function that `library` lacks, or "".
  std::string Load(void* library) {
    std::string missing;
    const auto find = [&](const char* name, auto* function) {
      *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
      if (*function == nullptr && missing.empty()) missing = name;
    };
    find("nvmlInit_v2", &init);
    find("nvmlShutdown", &shutdown);
    find("nvmlErrorString", &error_string);
    find("nvmlDeviceGetHandleByPciBusId_v2", &handle);
    find("nvmlDeviceGetName", &name);
    find("nvmlDeviceGetMemoryInfo", &memory);
    find("nvmlDeviceGetUtilizationRates", &utilization);
    find("nvmlDeviceGetTemperature", &temperature);
    find("nvmlDeviceGetPowerUsage", &power);
    find("nvmlDeviceGetEnforcedPowerLimit", &power_limit);
    return missing;
  }
};

Nvml::Nvml(std::unique_ptr<const Functions> functions) : functions_(std::move(functions)) {}

Nvml::~Nvml() { functions_->shutdown(); }

StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& library) {
  // Never unloaded: it belongs to the driver.
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (loaded == nullptr) {
    return Unavailable(fmt::format("{} cannot be loaded; it comes with NVIDIA's driver", library));
  }
  auto functions = std::make_unique<Functions>();
  if (const std::string missing = functions->Load(loaded); !missing.empty()) {
    return Unavailable(fmt::format("{} has no function {}", library, missing));
  }
  if (const Return error = functions->init(); error != kSuccess) {
    return Unavailable(fmt::format("{} cannot start: {}", library, functions->error_string(error)));
  }
  return std::unique_ptr<Nvml>(new Nvml(std::move(functions)));
}

StatusOr<GpuFigures> Nvml::Read(const std::string& pci_bus_id) const {
  const Functions& nvml = *functions_;
  const auto failed = [&](Return error, const char* what) {
    const auto code =
        error == kNotFound ? absl::StatusCode::kNotFound : absl::StatusCode::kInternal;
    return Error(code, "GPU {}: {}: {}", pci_bus_id, what, nvml.error_string(error));
  };
  GpuHandle device = nullptr;
  std::array<char, kNameBytes> name{};
  Functions::Memory memory;
  Functions::Utilization utilization;
  if (const Return e = nvml.handle(pci_bus_id.c_str(), &device); e != kSuccess) {
    return failed(e, "looking for it");
  }
  if (const Return e = nvml.name(device, name.data(), name.size()); e != kSuccess) {
    return failed(e, "its name");
  }
  if (const Return e = nvml.memory(device, &memory); e != kSuccess) {
    return failed(e, "its memory");
  }
  const auto figure = [&](auto* function, auto... arguments) {
    unsigned value = 0;
    return function(device, arguments..., &value) == kSuccess ? std::optional<uint32_t>(value)
                                                              : std::nullopt;
  };
  GpuFigures figures;
  figures.name = name.data();
  figures.memory_used = memory.used;
  figures.memory_total = memory.total;
  if (nvml.utilization(device, &utilization) == kSuccess) figures.utilization = utilization.gpu;
  figures.temperature = figure(nvml.temperature, kTemperatureOfGpu);
  figures.power = figure(nvml.power);
  figures.power_limit = figure(nvml.power_limit);
  return figures;
}

}  // namespace ringmaster::cuda
