// One program compiled for one device of the plugin: what goes in and comes out through the lane's
// memory, and how it is brought up again when the plugin dies. Made by PjrtCore, used on its thread
// only. It takes 1 to Program::samples rows; what it says of the others nobody sees.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/backend/pjrt/emit/emit.h"
#include "worker/backend/pjrt/lane.h"
#include "worker/backend/pjrt/pjrt_weights.h"
#include "worker/backend/pjrt/plugin_facts.h"
#include "worker/backend/pjrt/protocol.h"
#include "worker/process/shared_memory.h"

namespace ringmaster::pjrt {

class PjrtExecutable final : public Executable {
 public:
  // Emits and compiles the program. RESOURCE_EXHAUSTED: the plugin has no memory for it.
  [[nodiscard]] static StatusOr<std::unique_ptr<PjrtExecutable>> Create(
      const graph::Program& program, PjrtWeights& weights, uint32_t device,
      Convolutions convolutions, std::shared_ptr<Lane> lane);
  ~PjrtExecutable() override;

  // INVALID_ARGUMENT when sizes are not those of the program or an element is out of its range.
  // A plugin that dies is started again and runs the shard again, with the same bits, unless it
  // died too often, or hangs as it compiles; gradients are handed over once all of them are there.
  Status Run(const ShardInput& input, const GradientSink& sink, ShardOutput* output) override;

  // What it takes of the device's memory beside the weights.
  [[nodiscard]] uint64_t device_bytes() const;
  // Its parts and its largest tensors, for people.
  [[nodiscard]] std::string DescribeMemory() const;

 private:
  PjrtExecutable(const graph::Program& program, PjrtWeights& weights, Module module,
                 std::shared_ptr<Lane> lane);

  // Lays out the lane's memory, and says which weights are read.
  [[nodiscard]] Status LayOut(uint32_t device);
  [[nodiscard]] Status CopyText();
  // Compiles on the lane's connection, unless that has been done.
  [[nodiscard]] Status EnsureBound();
  // The same, once more where the plugin died under it.
  [[nodiscard]] Status BindFirst();
  // The same in a run, told to the sink where there is something to do.
  [[nodiscard]] Status BindAgain(const GradientSink& sink);
  [[nodiscard]] Status RunOnce();

  [[nodiscard]] Status CheckInput(const ShardInput& input) const;
  void Feed(const ShardInput& input) const;
  void FeedColumn(const graph::Column& column, std::span<const std::byte> rows,
                  std::span<std::byte> to) const;
  void FeedDropout(const std::string& layer, const ShardInput& input,
                   std::span<std::byte> to) const;
  void Collect(size_t rows, ShardOutput* output) const;
  void Deliver(const GradientSink& sink) const;

  [[nodiscard]] std::span<std::byte> Bytes(const Place& place) const;
  [[nodiscard]] std::span<const float> Floats(const Place& place) const;

  const graph::Program& program_;
  PjrtWeights& weights_;
  const std::shared_ptr<Lane> lane_;
  Module module_;
  BindRequest request_;  // what is sent again after a death
  SharedMemory text_;
  uint64_t lane_bytes_ = 0;
  uint64_t resident_bytes_ = 0;  // of arguments that are weights

  uint64_t connection_ = 0;  // on which it is bound
  BindReply bound_;
};

}  // namespace ringmaster::pjrt
