// How the state of a job lies in memory and what its parts are called: one arena for parameters and
// one for each optimizer slot, in the order of backward, cut into blocks; all normalizations'
// channels one after the other. Immutable, shared, thread-safe. Made from the training program, the
// same for every shard shape.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/exact/block_layout.h"
#include "common/graph/program.h"
#include "common/status.h"

namespace ringmaster::worker {

class StateLayout {
 public:
  struct Tensor {
    std::string name;
    graph::Shape shape;
    graph::Initializer initializer;
  };
  struct Normalization {
    std::string name;
    double momentum = 0;
    size_t first_channel = 0;  // in the statistics of all normalizations
    size_t channels = 0;
  };

  // INTERNAL when the program's gradient order does not name each parameter once.
  [[nodiscard]] static StatusOr<std::shared_ptr<const StateLayout>> Create(
      const graph::Program& training, std::vector<std::string> slot_names);

  StateLayout(const StateLayout&) = delete;
  StateLayout& operator=(const StateLayout&) = delete;

  [[nodiscard]] const exact::BlockLayout& blocks() const { return blocks_; }
  // By canonical number.
  [[nodiscard]] const std::vector<Tensor>& tensors() const { return tensors_; }
  [[nodiscard]] const std::vector<Normalization>& normalizations() const { return normalizations_; }
  [[nodiscard]] size_t channels() const { return channels_; }  // of all normalizations
  [[nodiscard]] const std::vector<std::string>& slot_names() const { return slot_names_; }
  // The tensor's name, or what the scalars record is called in messages.
  [[nodiscard]] std::string NameOf(uint32_t tensor) const;

 private:
  explicit StateLayout(exact::BlockLayout blocks) : blocks_(std::move(blocks)) {}

  exact::BlockLayout blocks_;
  std::vector<Tensor> tensors_;
  std::vector<Normalization> normalizations_;
  size_t channels_ = 0;
  std::vector<std::string> slot_names_;
};

}  // namespace ringmaster::worker
