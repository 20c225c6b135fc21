// The GPUs of this host: what each one is, handles of the libraries that compute on it, and what it
// is doing, for people. What each may be used by stands above it.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "common/status.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::cuda {

// What is the same for everybody who uses the GPU. A value.
struct DeviceFacts {
  int index = 0;
  std::string name;  // NVIDIA H200
  int major = 0;     // compute capability 9.0: sm_90
  int minor = 0;
  int multiprocessors = 0;
  int max_shared_bytes = 0;   // of a block, opted in
  uint64_t memory_bytes = 0;  // in all
  std::string pci_bus_id;     // 0000:1B:00.0
};

// Why no GPU can be used here, or the facts of each of them. UNAVAILABLE: one line that says what
// is missing (a driver, a device, one that is new enough) and what the worker does instead.
[[nodiscard]] StatusOr<std::vector<DeviceFacts>> FindDevices();

// Versions of what computes, for the numerics class: CUDA's runtime and driver, cuDNN, the compiler
// without which it lacks engines ("none"), cuBLASLt, and under kKernelTable the installed one.
inline constexpr char kKernelTable[] = "kernel table";
[[nodiscard]] std::map<std::string, std::string> ComputeLibraries();

// One GPU as the kernels of one core see it: what it is, and handles of the libraries that compute
// on it. Made on the core's thread and used there only.
class Device {
 public:
  // Makes the GPU current on this thread.
  [[nodiscard]] static StatusOr<std::unique_ptr<Device>> Open(const DeviceFacts& facts);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] const DeviceFacts& facts() const { return facts_; }
  // Its stream is set by whoever launches.
  [[nodiscard]] cudnnHandle_t cudnn() const { return cudnn_; }
  [[nodiscard]] cublasLtHandle_t cublas_lt() const { return cublas_lt_; }

 private:
  explicit Device(DeviceFacts facts) : facts_(std::move(facts)) {}

  const DeviceFacts facts_;
  cudnnHandle_t cudnn_ = nullptr;
  cublasLtHandle_t cublas_lt_ = nullptr;
};

// What NVIDIA's management library says of a GPU at this moment: memory, load, heat. The library
// belongs to the driver and is loaded at run time; nothing here needs CUDA. Thread-safe.

// Figures that this kind of GPU does not have are missing.
struct GpuFigures {
  std::string name;                     // NVIDIA H200
  uint64_t memory_used = 0;             // bytes, by all processes
  uint64_t memory_total = 0;            // bytes
  std::optional<uint32_t> utilization;  // percent of the last sample with a kernel running
  std::optional<uint32_t> temperature;  // degrees Celsius
  std::optional<uint32_t> power;        // milliwatts
  std::optional<uint32_t> power_limit;  // milliwatts
};

constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";

class Nvml {
 public:
  // UNAVAILABLE: there is no such library, or it finds no driver. `library`: tests have their own.
  [[nodiscard]] static StatusOr<std::unique_ptr<Nvml>> Open(
      const std::string& library = kNvmlLibrary);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // `pci_bus_id` as cudaDeviceGetPCIBusId gives it: indices of CUDA and of this library differ
  // where CUDA_VISIBLE_DEVICES hides GPUs or orders them otherwise. NOT_FOUND: no such GPU.
  [[nodiscard]] StatusOr<GpuFigures> Read(const std::string& pci_bus_id) const;

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<const Functions> functions);

  const std::unique_ptr<const Functions> functions_;
};

// The figures of a backend's GPUs, for people who look at a cluster. NVIDIA's management library
// has them; where it does not work they are what CUDA said when the backend was made: name and
// size. CUDA itself is not asked again: a question about memory would open a context on every GPU.
// Thread-safe.
class Gauges {
 public:
  // `library`: tests have their own.
  explicit Gauges(std::vector<DeviceFacts> devices, std::string library = kNvmlLibrary);

  // Of each device, in order. The first call opens the library, and one line in the log says why
  // where that fails; so does one for each GPU that cannot be read, once.
  [[nodiscard]] std::vector<v1::DeviceFigures> Read();

 private:
  void Open();
  void AddFigures(const DeviceFacts& facts, v1::DeviceFigures* device);

  const std::vector<DeviceFacts> devices_;
  const std::string library_;

  std::once_flag opening_;
  std::unique_ptr<const Nvml> nvml_;  // constant after `opening_`

  Mutex mu_;
  std::vector<std::string> unreadable_ ABSL_GUARDED_BY(mu_);  // bus ids that the log has named
};

}  // namespace ringmaster::cuda
