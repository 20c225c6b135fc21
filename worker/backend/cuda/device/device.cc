#include "worker/backend/cuda/device/device.h"

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

}  // namespace ringmaster::cuda
