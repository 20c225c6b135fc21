#include "worker/backend/pjrt/resident_weights.h"

namespace ringmaster::pjrt {

ResidentWeights::Copy& ResidentWeights::Find(size_t device, WeightGroup group) {
  MutexLock lock(mu_);
  return copies_[{device, group}];
}

StatusOr<std::shared_ptr<const ResidentWeights::Buffers>> ResidentWeights::On(size_t device,
                                                                              WeightGroup group,
                                                                              uint64_t version) {
  Copy& copy = Find(device, group);
  MutexLock lock(copy.mu);
  if (copy.buffers != nullptr && copy.version == version) return copy.buffers;
  copy.buffers = nullptr;  // the device may have no room for both
  RING_ASSIGN_OR_RETURN(copy.buffers, Upload(device, group));
  copy.version = version;
  return copy.buffers;
}

StatusOr<std::shared_ptr<const ResidentWeights::Buffers>> ResidentWeights::Upload(
    size_t device, WeightGroup group) {
  std::vector<HostTensor> tensors;
  std::vector<size_t> places;
  for (size_t i = 0; i < table_.tensors.size(); ++i) {
    const WeightPlace& tensor = table_.tensors[i];
    if (tensor.group != group) continue;
    tensors.push_back({&tensor.place.type, memory_.data() + tensor.place.offset});
    places.push_back(i);
  }
  RING_ASSIGN_OR_RETURN(std::vector<DeviceBuffer> uploaded, plugin_.Upload(device, tensors));
  auto buffers = std::make_shared<Buffers>(table_.tensors.size());
  for (size_t i = 0; i < places.size(); ++i) (*buffers)[places[i]] = std::move(uploaded[i]);
  return buffers;
}

}  // namespace ringmaster::pjrt
