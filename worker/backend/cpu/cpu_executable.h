// One program bound to one core: kernels with their addresses, run node by node. Made by CpuCore,
// used on its thread only; shares the core's memory with the core's other executables.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/backend/core_layout.h"
#include "worker/backend/cpu/kernel.h"

namespace ringmaster::cpu {

// A kernel with the parameter layouts that it asked for: one for each input, null where none.
struct BoundNode {
  std::unique_ptr<Kernel> kernel;
  std::vector<WeightCopy*> copies;
  std::optional<uint32_t> in_pieces = {};  // the parameter whose gradient it hands over so
  Operands operands = {};                  // as it was attached
};

class CpuExecutable final : public Executable {
 public:
  // `memory`: layout.bytes bytes of the core, at a multiple of kAlignment.
  [[nodiscard]] static StatusOr<std::unique_ptr<CpuExecutable>> Create(
      const graph::Program& program, CpuWeights& weights, std::vector<BoundNode> nodes,
      const CoreLayout& layout, std::byte* memory);

  // INVALID_ARGUMENT when sizes are not those of the program or a label is out of range.
  Status Run(const ShardInput& input, const GradientSink& sink, ShardOutput* output) override;

 private:
  CpuExecutable(const graph::Program& program, CpuWeights& weights, std::vector<BoundNode> nodes);
  Status Place(const CoreLayout& layout, std::byte* memory);
  Status AttachKernels(const CoreLayout& layout, std::byte* memory);
  // Kernels that read weights in place go where these lie now.
  Status FollowMasters();
  void Feed(const ShardInput& input);
  // Hands over gradients, in gradient_order, that are complete after `node`, but for those in
  // pieces.
  void Deliver(graph::NodeId node, size_t* next, const GradientSink& sink) const;

  template <typename T>
  T* At(graph::ValueId value) const {
    return static_cast<T*>(addresses_[static_cast<size_t>(value)]);
  }

  const graph::Program& program_;
  CpuWeights& weights_;
  std::vector<BoundNode> nodes_;
  uint64_t moves_;                                   // of the weights, when nodes were attached
  std::vector<WeightCopy*> copies_;                  // that this program reads, each once
  std::vector<void*> addresses_;                     // by ValueId; null for parameters
  const std::vector<graph::NodeId> gradient_nodes_;  // by place in gradient_order
};

}  // namespace ringmaster::cpu
