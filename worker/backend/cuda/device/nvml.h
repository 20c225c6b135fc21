// What NVIDIA's management library says of a GPU at this moment: memory, load, heat. The library
// belongs to the driver and is loaded at run time; nothing here needs CUDA. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/status.h"

namespace ringmaster::cuda {

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

}  // namespace ringmaster::cuda
