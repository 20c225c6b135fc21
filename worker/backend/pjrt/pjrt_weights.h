// The parameters and statistics of a job in memory that the plugin's process sees, as they are in
// the master arena: each device gets a copy when a program first runs there after a change. Made by
// PjrtBackend. Refresh and its like never run beside anything else; all else is thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/backend/core_layout.h"
#include "worker/backend/pjrt/emit/emit.h"
#include "worker/backend/pjrt/protocol.h"
#include "worker/backend/refresh_input.h"
#include "worker/process/shared_memory.h"

namespace ringmaster::pjrt {

// Where arguments and results of programs, and weights, lie in shared memory. Weights stay on a
// device, all else is in a lane.

inline constexpr size_t kAlignment = 64;  // bytes, of every tensor

[[nodiscard]] inline TensorType TypeOf(const Argument& argument) {
  const Element element = argument.type == ElementType::kInt32    ? Element::kInt32
                          : argument.type == ElementType::kUInt32 ? Element::kUInt32
                                                                  : Element::kFloat32;
  return {element, {argument.shape.begin(), argument.shape.end()}};
}
[[nodiscard]] inline TensorType TypeOf(const Result& result) {
  return {Element::kFloat32, {result.shape.begin(), result.shape.end()}};
}

[[nodiscard]] bool IsResident(const Argument& argument);

// Behind what takes `bytes` so far, which grows.
[[nodiscard]] inline Place Append(TensorType type, uint64_t* bytes) {
  const uint64_t offset = AlignUp(*bytes, kAlignment);
  *bytes = offset + type.bytes();
  return {std::move(type), offset};
}
// What a program takes of a lane.
[[nodiscard]] uint64_t LaneBytes(const Module& module);

class PjrtWeights final : public Weights {
 public:
  // `id`: never used before by this process.
  [[nodiscard]] static StatusOr<std::unique_ptr<PjrtWeights>> Create(const graph::Program& training,
                                                                     uint64_t id);

  Status Refresh(const exact::BlockLayout& layout, std::span<const float> parameters,
                 std::span<const float> moving_means,
                 std::span<const float> moving_variances) override;
  Status LoadFrozen(std::span<const float> values) override;
  Status RefreshStatistics(std::span<const float> moving_means,
                           std::span<const float> moving_variances) override;
  [[nodiscard]] uint64_t DeviceBytes(const DeviceStateOptions* state) const override;
  // Each device has a copy of what the host has.
  [[nodiscard]] uint64_t HostBytes() const override { return table_.bytes; }

  [[nodiscard]] const WeightsTable& table() const { return table_; }
  [[nodiscard]] int file() const { return memory_.file(); }
  // Of parameters, frozen ones and statistics; 0 where there is nothing yet.
  [[nodiscard]] const WeightVersions& versions() const { return versions_; }
  // The number in the table of an argument of a program; INVALID_ARGUMENT when these weights have
  // none of that kind, number and shape.
  [[nodiscard]] StatusOr<uint32_t> TensorOf(const Argument& argument) const;

 private:
  PjrtWeights(const graph::Program& training, uint64_t id);

  void Add(WeightGroup group, const graph::Shape& shape);
  // Where a tensor's values lie.
  [[nodiscard]] float* At(size_t tensor) const;
  void Bump(WeightGroup group) { ++versions_[static_cast<size_t>(group)]; }

  const RefreshSizes sizes_;
  WeightsTable table_;  // parameters, frozen ones, then mean and variance of each normalization
  SharedMemory memory_;
  WeightVersions versions_ = {};
};

}  // namespace ringmaster::pjrt
