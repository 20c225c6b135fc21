// The weights of one job on the devices: copied to each of them once after they changed, by the
// first run there that needs them, and shared by all programs that are bound with them.
// Thread-safe. It never changes the memory that it reads; the daemon does, while nothing runs.
#pragma once

#include <absl/base/thread_annotations.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "worker/backend/pjrt/plugin.h"
#include "worker/backend/pjrt/protocol.h"
#include "worker/process/shared_memory.h"

namespace ringmaster::pjrt {

class ResidentWeights {
 public:
  // By tensor of the table; null where it is of another group.
  using Buffers = std::vector<DeviceBuffer>;

  // `plugin` must outlive it; the table has been checked against the memory.
  ResidentWeights(const Plugin& plugin, WeightsTable table, SharedMemory memory)
      : plugin_(plugin), table_(std::move(table)), memory_(std::move(memory)) {}

  [[nodiscard]] const WeightsTable& table() const { return table_; }
  // A group on a device, of this version: copied there unless it is already.
  [[nodiscard]] StatusOr<std::shared_ptr<const Buffers>> On(size_t device, WeightGroup group,
                                                            uint64_t version);

 private:
  struct Copy {
    Mutex mu;  // held while it is copied
    uint64_t version ABSL_GUARDED_BY(mu) = 0;
    std::shared_ptr<const Buffers> buffers ABSL_GUARDED_BY(mu);
  };

  [[nodiscard]] Copy& Find(size_t device, WeightGroup group);
  [[nodiscard]] StatusOr<std::shared_ptr<const Buffers>> Upload(size_t device, WeightGroup group);

  const Plugin& plugin_;
  const WeightsTable table_;
  const SharedMemory memory_;
  Mutex mu_;
  std::map<std::pair<size_t, WeightGroup>, Copy> copies_ ABSL_GUARDED_BY(mu_);  // nodes stay
};

}  // namespace ringmaster::pjrt
