#include "worker/state/init_weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "common/graph/message/tensor_layout.h"
#include "common/sha256.h"

namespace ringmaster::worker {
namespace {

struct Target {
  graph::Shape shape;
  std::span<float> values;
};

// Every tensor of a state that an init may have, by name.
std::map<std::string, Target> TargetsOf(State* state) {
  const StateLayout& layout = *state->layout;
  std::map<std::string, Target> targets;
  const auto add = [&](const exact::BlockLayout& blocks,
                       const std::vector<StateLayout::Tensor>& tensors, std::span<float> arena) {
    for (const exact::TensorRange& range : blocks.tensors()) {
      const StateLayout::Tensor& tensor = tensors[range.tensor];
      targets[tensor.name] = {tensor.shape, arena.subspan(range.offset(), range.elements)};
    }
  };
  add(layout.blocks(), layout.tensors(), state->parameters.span());
  add(layout.frozen(), layout.frozen_tensors(), state->frozen.span());
  for (const StateLayout::Normalization& norm : layout.normalizations()) {
    const graph::Normalization names = {.name = norm.name};
    const graph::Shape shape = {static_cast<int64_t>(norm.channels)};
    const auto part = [&](Arena<float>& arena) {
      return arena.span().subspan(norm.first_channel, norm.channels);
    };
    targets[names.moving_mean_name()] = {shape, part(state->moving_means)};
    targets[names.moving_variance_name()] = {shape, part(state->moving_variances)};
  }
  return targets;
}

}  // namespace

StatusOr<std::shared_ptr<const InitWeights>> InitWeights::Read(std::string file) {
  std::shared_ptr<InitWeights> weights(new InitWeights(std::move(file)));
  StatusOr<TensorViews> tensors = ReadSafetensors(weights->file_);
  if (!tensors.ok()) {
    return InvalidArgument("not a safetensors file that can be read: {}",
                           Message(tensors.status()));
  }
  weights->tensors_ = *std::move(tensors);
  weights->facts_.set_sha256(Hex(Sha256Of(weights->file_)));
  weights->facts_.set_bytes(weights->file_.size());
  for (const auto& [name, view] : weights->tensors_) {
    v1::SourceTensor& tensor = *weights->facts_.add_tensors();
    tensor.set_name(name);
    tensor.set_type(Name(view.type));
    tensor.mutable_shape()->Assign(view.shape.begin(), view.shape.end());
  }
  return std::shared_ptr<const InitWeights>(std::move(weights));
}

Status InitWeights::Take(const v1::InitTensor& tensor, const graph::Shape& shape,
                         std::span<float> values) const {
  const auto found = tensors_.find(tensor.source());
  const bool fits = found != tensors_.end() && found->second.type == ElementType::kF32 &&
                    found->second.bytes.size() == values.size_bytes();
  if (!fits) {
    return FailedPrecondition("init: {} does not have {} elements of F32 for {}", tensor.source(),
                              values.size(), tensor.name());
  }
  const std::vector<int64_t> image(tensor.image().begin(), tensor.image().end());
  const auto order = graph::AxisOrder::Of(tensor.layout(), tensor.name(), shape, image);
  if (graph::ElementsOf(order) != values.size()) {
    return FailedPrecondition("init: {} is no kernel behind an image of {} extents", tensor.name(),
                              image.size());
  }
  std::vector<float> theirs(values.size());  // a file's bytes may lie at any address
  std::memcpy(theirs.data(), found->second.bytes.data(), values.size_bytes());
  graph::FromLayout(order, theirs, values);
  return absl::OkStatus();
}

Status InitWeights::Apply(const v1::InitFacts& init, State* state) const {
  if (init.sha256() != facts_.sha256()) {
    return FailedPrecondition("what the job begins with has SHA-256 {} here, expected {}",
                              facts_.sha256(), init.sha256());
  }
  const std::map<std::string, Target> targets = TargetsOf(state);
  for (const v1::InitTensor& tensor : init.tensors()) {
    const auto target = targets.find(tensor.name());
    if (target == targets.end()) {
      return FailedPrecondition("init: the model has no tensor {}", tensor.name());
    }
    RING_RETURN_IF_ERROR(Take(tensor, target->second.shape, target->second.values));
  }
  if (state->layout->averages()) {
    std::ranges::copy(state->parameters.span(), state->slots.back().span().begin());
  }
  state->written = HashState(*state);
  return absl::OkStatus();
}

}  // namespace ringmaster::worker
