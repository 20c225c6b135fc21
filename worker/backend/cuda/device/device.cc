#include "worker/backend/cuda/device/device.h"

#include <dlfcn.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <utility>

#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/libraries/cudnn_descriptor.h"
#include "worker/backend/cuda/libraries/plan_table.h"

namespace ringmaster::cuda {
namespace {

constexpr int kOldestMajor = 8;  // sm_80: the A100, the first with bfloat16

template <typename... Args>
Status Unavailable(fmt::format_string<Args...> format, Args&&... args) {
  return Error(absl::StatusCode::kUnavailable, format, std::forward<Args>(args)...);
}

// CUDA's own numbers: 13000 is 13.0.
std::string CudaVersion(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// Major * 10000 + minor * 100 + patch, as cuDNN and cuBLAS number theirs.
std::string LibraryVersion(size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

int DriverVersion() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

int RuntimeVersion() {
  int version = 0;
  return cudaRuntimeGetVersion(&version) == cudaSuccess ? version : 0;
}

StatusOr<int> CountDevices() {
  const int driver = DriverVersion();
  if (driver == 0) {
    return Unavailable("this host has no NVIDIA driver; install one that knows CUDA {} or newer",
                       CudaVersion(RuntimeVersion()));
  }
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  (void)cudaGetLastError();
  if (error == cudaSuccess || error == cudaErrorNoDevice) {
    return Unavailable(
        "the NVIDIA driver shows no GPU; `nvidia-smi` must list one, and CUDA_VISIBLE_DEVICES must "
        "not hide it");
  }
  if (error == cudaErrorInsufficientDriver) {
    return Unavailable("the NVIDIA driver knows CUDA {}, expected {} or newer; install a newer one",
                       CudaVersion(driver), CudaVersion(RuntimeVersion()));
  }
  return Unavailable("no GPU can be used: {}: {}; `nvidia-smi` may say more",
                     cudaGetErrorName(error), cudaGetErrorString(error));
}

StatusOr<DeviceFacts> FactsOf(int index) {
  cudaDeviceProp properties;
  RING_RETURN_IF_ERROR(
      FromCuda(cudaGetDeviceProperties(&properties, index), fmt::format("GPU {}", index)));
  std::array<char, 32> pci_bus_id{};
  RING_RETURN_IF_ERROR(FromCuda(cudaDeviceGetPCIBusId(pci_bus_id.data(), pci_bus_id.size(), index),
                                fmt::format("the PCI bus id of GPU {}", index)));
  return DeviceFacts{.index = index,
                     .name = properties.name,
                     .major = properties.major,
                     .minor = properties.minor,
                     .multiprocessors = properties.multiProcessorCount,
                     .max_shared_bytes = static_cast<int>(properties.sharedMemPerBlockOptin),
                     .memory_bytes = properties.totalGlobalMem,
                     .pci_bus_id = pci_bus_id.data()};
}

}  // namespace

StatusOr<std::vector<DeviceFacts>> FindDevices() {
  RING_ASSIGN_OR_RETURN(const int count, CountDevices());
  std::vector<DeviceFacts> devices;
  for (int index = 0; index < count; ++index) {
    RING_ASSIGN_OR_RETURN(devices.emplace_back(), FactsOf(index));
  }
  const DeviceFacts first = devices.front();
  std::erase_if(devices, [](const DeviceFacts& facts) { return facts.major < kOldestMajor; });
  if (!devices.empty()) return devices;
  return Unavailable(
      "{} has compute capability {}.{}, expected {}.0 or newer (an A100 or what came after it)",
      first.name, first.major, first.minor, kOldestMajor);
}

std::map<std::string, std::string> ComputeLibraries() {
  return {{"CUDA", CudaVersion(RuntimeVersion())},
          {"CUDA driver", CudaVersion(DriverVersion())},
          {"cuBLASLt", LibraryVersion(cublasLtGetVersion())},
          {"cuDNN", LibraryVersion(cudnnGetVersion())},
          {"NVRTC", CudnnCompiler()},
          {kKernelTable, InstalledPlanTableVersion()}};
}

StatusOr<std::unique_ptr<Device>> Device::Open(const DeviceFacts& facts) {
  std::unique_ptr<Device> device(new Device(facts));
  const std::string name = fmt::format("GPU {} ({})", facts.index, facts.name);
  RING_RETURN_IF_ERROR(FromCuda(cudaSetDevice(facts.index), name));
  const cudnnStatus_t cudnn = cudnnCreate(&device->cudnn_);
  if (cudnn != CUDNN_STATUS_SUCCESS) {
    return Internal("{}: cuDNN does not start: {}", name, cudnnGetErrorString(cudnn));
  }
  const cublasStatus_t cublas = cublasLtCreate(&device->cublas_lt_);
  if (cublas != CUBLAS_STATUS_SUCCESS) {
    return Internal("{}: cuBLASLt does not start: {}", name, cublasLtGetStatusString(cublas));
  }
  return device;
}

Device::~Device() {
  if (cublas_lt_ != nullptr) (void)cublasLtDestroy(cublas_lt_);
  if (cudnn_ != nullptr) (void)cudnnDestroy(cudnn_);
}

namespace {

// The part of NVML's binary interface that is used here, from NVIDIA's NVML API reference: it comes
// with the driver, its header with the toolkit only.
using Return = int;
using GpuHandle = void*;
constexpr Return kSuccess = 0;
constexpr Return kNotFound = 6;
constexpr int kTemperatureOfGpu = 0;
constexpr size_t kNameBytes = 96;  // NVML_DEVICE_NAME_V2_BUFFER_SIZE

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
    return Unavailable("{} cannot be loaded; it comes with NVIDIA's driver", library);
  }
  auto functions = std::make_unique<Functions>();
  if (const std::string missing = functions->Load(loaded); !missing.empty()) {
    return Unavailable("{} has no function {}", library, missing);
  }
  if (const Return error = functions->init(); error != kSuccess) {
    return Unavailable("{} cannot start: {}", library, functions->error_string(error));
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

Gauges::Gauges(std::vector<DeviceFacts> devices, std::string library)
    : devices_(std::move(devices)), library_(std::move(library)) {}

std::vector<v1::DeviceFigures> Gauges::Read() {
  std::call_once(opening_, [this] { Open(); });
  std::vector<v1::DeviceFigures> devices;
  for (const DeviceFacts& facts : devices_) {
    v1::DeviceFigures& device = devices.emplace_back();
    device.set_kind("cuda");
    device.set_index(static_cast<uint32_t>(devices.size() - 1));
    device.set_name(facts.name);
    device.set_memory_total(facts.memory_bytes);
    if (nvml_ != nullptr) AddFigures(facts, &device);
  }
  return devices;
}

void Gauges::Open() {
  auto nvml = Nvml::Open(library_);
  if (nvml.ok()) {
    nvml_ = *std::move(nvml);
  } else {
    spdlog::info("of GPUs only name and memory size are reported: {}", Message(nvml.status()));
  }
}

void Gauges::AddFigures(const DeviceFacts& facts, v1::DeviceFigures* device) {
  const auto figures = nvml_->Read(facts.pci_bus_id);
  if (!figures.ok()) {
    const MutexLock lock(mu_);
    if (std::find(unreadable_.begin(), unreadable_.end(), facts.pci_bus_id) == unreadable_.end()) {
      unreadable_.push_back(facts.pci_bus_id);
      spdlog::warn("only name and memory size are reported while this fails: {}",
                   Message(figures.status()));
    }
    return;
  }
  device->set_name(figures->name);
  device->set_memory_used(figures->memory_used);
  device->set_memory_total(figures->memory_total);
  if (figures->utilization) device->set_utilization(*figures->utilization);
  if (figures->temperature) device->set_temperature(*figures->temperature);
  if (figures->power) device->set_power(*figures->power);
  if (figures->power_limit) device->set_power_limit(*figures->power_limit);
}

}  // namespace ringmaster::cuda
