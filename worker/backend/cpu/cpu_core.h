// A core of a CPU host: the thread that made it, its group of OpenMP threads, and its memory. Used
// on that thread only.
#pragma once

#include <memory>
#include <thread>

#include "worker/backend/backend.h"
#include "worker/backend/cpu/arena.h"
#include "worker/backend/cpu/cpu_executable.h"
#include "worker/backend/cpu/device.h"

namespace ringmaster::cpu {

class CpuCore final : public Core {
 public:
  // Sets affinity, the OpenMP thread count and the float mode of the calling thread (and of its
  // group). INVALID_ARGUMENT for a CPU that does not exist; FAILED_PRECONDITION when OpenMP gives
  // fewer threads.
  [[nodiscard]] static StatusOr<std::unique_ptr<CpuCore>> Create(const CoreOptions& options,
                                                                 const Device& device);

  StatusOr<std::unique_ptr<Executable>> Bind(const graph::Program& program, Weights& weights,
                                             const graph::Augmenter* augmenter) override;
  StatusOr<CoreLayout> Plan(const graph::Program& program, Weights& weights) override;
  [[nodiscard]] uint64_t memory_bytes() const override { return largest_; }

 private:
  CpuCore(CoreOptions options, const Device& device, Arena arena);

  // Them, as this backend's; only on the core's thread.
  [[nodiscard]] StatusOr<CpuWeights*> Own(Weights* weights) const;
  // Binds the program's nodes, and lays out what they take.
  [[nodiscard]] StatusOr<CoreLayout> LayOutNodes(const graph::Program& program, CpuWeights* weights,
                                                 std::vector<BoundNode>* nodes) const;

  const CoreOptions options_;
  const Device& device_;
  const std::thread::id thread_;
  Arena arena_;
  uint64_t largest_ = 0;  // of the programs bound so far
};

}  // namespace ringmaster::cpu
