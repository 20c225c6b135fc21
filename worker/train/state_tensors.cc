#include "worker/train/state_tensors.h"

#include <bit>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "common/exact/block_layout.h"

namespace ringmaster::worker {
namespace {

constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kRest = "state.safetensors";

template <typename T>
std::span<const uint8_t> Bytes(std::span<T> values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()};
}

template <typename T>
TensorView Scalar(ElementType type, const T& value) {
  return {type, {}, Bytes(std::span<const T>(&value, 1))};
}

// Calls visit(file, name, shape, values) for every float32 tensor; S is State or const State.
template <typename S, typename Visit>
void VisitFloats(S& state, Visit visit) {
  const StateLayout& layout = *state.layout;
  for (const exact::TensorRange& range : layout.blocks().tensors()) {
    const StateLayout::Tensor& tensor = layout.tensors()[range.tensor];
    const auto part = [&](auto& arena) {
      return arena.span().subspan(range.offset(), range.elements);
    };
    visit(kModel, tensor.name, tensor.shape, part(state.parameters));
    for (size_t i = 0; i < state.slots.size(); ++i) {
      visit(kOptimizer, tensor.name + "/" + layout.slot_names()[i], tensor.shape,
            part(state.slots[i]));
    }
  }
  for (const StateLayout::Normalization& norm : layout.normalizations()) {
    const graph::Shape shape = {static_cast<int64_t>(norm.channels)};
    const auto part = [&](auto& arena) {
      return arena.span().subspan(norm.first_channel, norm.channels);
    };
    visit(kModel, norm.name + "/moving_mean", shape, part(state.moving_means));
    visit(kModel, norm.name + "/moving_variance", shape, part(state.moving_variances));
  }
}

std::string ExponentsName(const StateLayout& layout, uint32_t tensor) {
  return "exponents/" + layout.tensors()[tensor].name;
}

Status CheckSame(const std::string& file, const TensorViews& expected, const TensorViews& found) {
  for (const auto& [name, view] : expected) {
    const auto it = found.find(name);
    if (it == found.end()) {
      return Error(absl::StatusCode::kDataLoss, "{} lacks tensor {}", file, name);
    }
    if (it->second.type == view.type && it->second.shape == view.shape) continue;
    return Error(absl::StatusCode::kDataLoss,
                 "{}: tensor {} is {} [{}], the job's model has {} [{}]", file, name,
                 Name(it->second.type), fmt::join(it->second.shape, ", "), Name(view.type),
                 fmt::join(view.shape, ", "));
  }
  for (const auto& [name, view] : found) {
    if (expected.contains(name)) continue;
    return Error(absl::StatusCode::kDataLoss, "{} has a tensor that the job's model has not: {}",
                 file, name);
  }
  return absl::OkStatus();
}

// Types, shapes and so sizes were compared before. A file's bytes may lie at any address.
template <typename T>
void Copy(const TensorView& from, std::span<T> to) {
  if (!to.empty()) std::memcpy(to.data(), from.bytes.data(), to.size_bytes());
}

template <typename T>
T Get(const TensorViews& rest, const std::string& name) {
  T value{};
  Copy(rest.at(name), std::span<T>(&value, 1));
  return value;
}

StatusOr<LossScale> GetLossScale(const TensorViews& rest) {
  const auto value = Get<int64_t>(rest, "loss_scale");
  const auto good_steps = Get<int64_t>(rest, "good_steps");
  const bool power =
      value >= 1 && value <= kLargestLossScale && std::has_single_bit(static_cast<uint64_t>(value));
  const bool count = good_steps >= 0 && good_steps <= std::numeric_limits<uint32_t>::max();
  if (power && count) {
    return LossScale{static_cast<uint32_t>(value), static_cast<uint32_t>(good_steps)};
  }
  return Error(absl::StatusCode::kDataLoss,
               "{}: loss scale {} after {} good steps, expected a power of two from 1 to {}", kRest,
               value, good_steps, kLargestLossScale);
}

Status SetRest(const TensorViews& rest, State* state) {
  const StateLayout& layout = *state->layout;
  std::vector<int16_t> exponents(layout.blocks().block_count());
  for (const exact::TensorRange& range : layout.blocks().tensors()) {
    Copy(rest.at(ExponentsName(layout, range.tensor)),
         std::span(exponents).subspan(range.first_block, range.block_count));
  }
  RING_RETURN_IF_ERROR(state->units.Restore(exponents));
  state->step = static_cast<uint64_t>(Get<int64_t>(rest, "step"));
  state->updates = static_cast<uint64_t>(Get<int64_t>(rest, "updates"));
  RING_ASSIGN_OR_RETURN(state->loss_scale, GetLossScale(rest));
  state->metrics.epoch = static_cast<uint64_t>(Get<int64_t>(rest, "metrics/epoch"));
  state->metrics.loss_sum = Get<double>(rest, "metrics/loss_sum");
  state->metrics.correct = static_cast<uint64_t>(Get<int64_t>(rest, "metrics/correct"));
  state->metrics.samples = static_cast<uint64_t>(Get<int64_t>(rest, "metrics/samples"));
  Copy(rest.at("digest"), std::span<uint8_t>(state->digest));
  return absl::OkStatus();
}

}  // namespace

Scalars ScalarsOf(const State& state) {
  return {.step = static_cast<int64_t>(state.step),
          .updates = static_cast<int64_t>(state.updates),
          .loss_scale = state.loss_scale.value,
          .good_steps = state.loss_scale.good_steps,
          .epoch = static_cast<int64_t>(state.metrics.epoch),
          .loss_sum = state.metrics.loss_sum,
          .correct = static_cast<int64_t>(state.metrics.correct),
          .samples = static_cast<int64_t>(state.metrics.samples)};
}

std::map<std::string, TensorViews> TensorsOf(const State& state, const Scalars& scalars) {
  std::map<std::string, TensorViews> files;
  files[kOptimizer];  // there even when the optimizer has no slots
  VisitFloats(state, [&](const char* file, const std::string& name, const graph::Shape& shape,
                         std::span<const float> values) {
    files[file][name] = {ElementType::kF32, shape, Bytes(values)};
  });
  TensorViews& rest = files[kRest];
  const StateLayout& layout = *state.layout;
  for (const exact::TensorRange& range : layout.blocks().tensors()) {
    const auto values = state.units.exponents().subspan(range.first_block, range.block_count);
    const auto blocks = static_cast<int64_t>(range.block_count);
    rest[ExponentsName(layout, range.tensor)] = {ElementType::kI16, {blocks}, Bytes(values)};
  }
  rest["step"] = Scalar(ElementType::kI64, scalars.step);
  rest["updates"] = Scalar(ElementType::kI64, scalars.updates);
  rest["loss_scale"] = Scalar(ElementType::kI64, scalars.loss_scale);
  rest["good_steps"] = Scalar(ElementType::kI64, scalars.good_steps);
  rest["metrics/epoch"] = Scalar(ElementType::kI64, scalars.epoch);
  rest["metrics/loss_sum"] = Scalar(ElementType::kF64, scalars.loss_sum);
  rest["metrics/correct"] = Scalar(ElementType::kI64, scalars.correct);
  rest["metrics/samples"] = Scalar(ElementType::kI64, scalars.samples);
  const auto digest_bytes = static_cast<int64_t>(state.digest.size());
  rest["digest"] = {ElementType::kU8, {digest_bytes}, std::span<const uint8_t>(state.digest)};
  return files;
}

Status SetTensors(const std::map<std::string, TensorViews>& files, State* state) {
  const Scalars scalars;
  for (const auto& [file, expected] : TensorsOf(*state, scalars)) {
    const auto found = files.find(file);
    if (found == files.end()) {
      return Error(absl::StatusCode::kDataLoss, "the checkpoint lacks {}", file);
    }
    RING_RETURN_IF_ERROR(CheckSame(file, expected, found->second));
  }
  VisitFloats(*state, [&](const char* file, const std::string& name, const graph::Shape&,
                          std::span<float> values) { Copy(files.at(file).at(name), values); });
  return SetRest(files.at(kRest), state);
}

}  // namespace ringmaster::worker
