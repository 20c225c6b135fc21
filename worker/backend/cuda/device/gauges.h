// The figures of a backend's GPUs, for people who look at a cluster. NVIDIA's management library
// has them; where it does not work they are what CUDA said when the backend was made: name and
// size. CUDA itself is not asked again: a question about memory would open a context on every GPU.
// Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "ringmaster/v1/jobs.pb.h"
#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/device/nvml.h"

namespace ringmaster::cuda {

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
