// One GPU as the kernels of one core see it: what it is, and handles of the libraries that compute
// on it. Made on the core's thread and used there only.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"

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

}  // namespace ringmaster::cuda
