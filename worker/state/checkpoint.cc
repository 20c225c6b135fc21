#include "worker/state/checkpoint.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "common/job/resolve.h"
#include "worker/state/manifest.h"

namespace ringmaster::worker {
namespace {

constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kAverage = "ema.safetensors";
constexpr const char* kPredictions = "predictions.safetensors";

const std::string kMetrics = "metrics/";
const std::string kWatch = "watch/";
constexpr std::array kWatchCounts = {"looked", "best_step", "stale"};
constexpr std::array kWatchValues = {"best", "reference"};

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
    const size_t slots = state.slots.size() - (layout.averages() ? 1 : 0);
    if (layout.averages()) visit(kAverage, tensor.name, tensor.shape, part(state.slots.back()));
    for (size_t i = 0; i < slots; ++i) {
      visit(kOptimizer, tensor.name + "/" + layout.slot_names()[i], tensor.shape,
            part(state.slots[i]));
    }
  }
  for (const exact::TensorRange& range : layout.frozen().tensors()) {
    const StateLayout::Tensor& tensor = layout.frozen_tensors()[range.tensor];
    const auto values = state.frozen.span().subspan(range.offset(), range.elements);
    visit(kModel, tensor.name, tensor.shape, values);
    if (layout.averages()) visit(kAverage, tensor.name, tensor.shape, values);
  }
  for (const StateLayout::Normalization& norm : layout.normalizations()) {
    const graph::Shape shape = {static_cast<int64_t>(norm.channels)};
    const auto part = [&](auto& arena) {
      return arena.span().subspan(norm.first_channel, norm.channels);
    };
    for (const char* file : {kModel, kAverage}) {
      if (file == kAverage && !layout.averages()) continue;
      visit(file, norm.name + "/moving_mean", shape, part(state.moving_means));
      visit(file, norm.name + "/moving_variance", shape, part(state.moving_variances));
    }
  }
  const uint64_t predicted = state.predicted.before(state.step);
  for (size_t i = 0; i < state.rows.size(); ++i) {
    const StateLayout::Rows& rows = layout.rows()[i];
    graph::Shape shape = rows.shape;
    shape.insert(shape.begin(), static_cast<int64_t>(predicted));
    visit(kPredictions, rows.name, shape, state.rows[i].span().first(predicted * rows.elements));
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

// Types, shapes and so sizes were compared before. A file's bytes may lie anywhere, also here.
template <typename T>
void Copy(const TensorView& from, std::span<T> to) {
  const bool here = static_cast<const void*>(from.bytes.data()) == to.data();
  if (!to.empty() && !here) std::memcpy(to.data(), from.bytes.data(), to.size_bytes());
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
               "{}: loss scale {} after {} good steps, expected a power of two from 1 to {}",
               kRestOfState, value, good_steps, kLargestLossScale);
}

Status SetWatched(const TensorViews& rest, Watched* watched) {
  const auto count = [&](size_t i) {
    return Get<int64_t>(rest, fmt::format("{}{}/{}", kWatch, watched->name, kWatchCounts[i]));
  };
  const auto value = [&](size_t i) {
    return Get<double>(rest, fmt::format("{}{}/{}", kWatch, watched->name, kWatchValues[i]));
  };
  const bool counts = count(0) >= 0 && count(1) >= 0 && count(1) <= count(0) && count(2) >= 0;
  if (!counts || !std::isfinite(value(0)) || !std::isfinite(value(1))) {
    return Error(absl::StatusCode::kDataLoss,
                 "{}: watch/{}: step {} looked at, best {} of step {}, {} without a better one: "
                 "these cannot be",
                 kRestOfState, watched->name, count(0), value(0), count(1), count(2));
  }
  watched->looked = static_cast<uint64_t>(count(0));
  watched->best_step = static_cast<uint64_t>(count(1));
  watched->stale = static_cast<uint64_t>(count(2));
  watched->best = value(0);
  watched->reference = value(1);
  return absl::OkStatus();
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
  state->metrics = {.epoch = static_cast<uint64_t>(Get<int64_t>(rest, "epoch")),
                    .samples = static_cast<uint64_t>(Get<int64_t>(rest, "samples"))};
  for (const StateLayout::Scalar& scalar : layout.scalars()) {
    const std::string name = kMetrics + scalar.name;
    const double sum =
        scalar.counts ? static_cast<double>(Get<int64_t>(rest, name)) : Get<double>(rest, name);
    if (!std::isfinite(sum) || (scalar.counts && !(sum >= 0 && sum <= 0x1p53))) {
      return Error(absl::StatusCode::kDataLoss, "{}: {} is {}: no sum of what samples have",
                   kRestOfState, name, sum);
    }
    state->metrics.sums.push_back(sum);
  }
  for (Watched& watched : state->watched) RING_RETURN_IF_ERROR(SetWatched(rest, &watched));
  Copy(rest.at("digest"), std::span<uint8_t>(state->digest));
  Copy(rest.at("digest_before"), std::span<uint8_t>(state->link.before));
  Copy(rest.at("class_maps"), std::span<uint8_t>(state->link.maps));
  std::array<uint8_t, 16> sums = {};
  Copy(rest.at("sums"), std::span<uint8_t>(sums));
  state->link.sums = exact::BlockSum::OfBytes(sums);
  return absl::OkStatus();
}

// How many rows there are depends on it.
Status SetStep(const std::map<std::string, TensorViews>& files, State* state) {
  const auto rest = files.find(kRestOfState);
  const auto step = rest == files.end() ? TensorViews::const_iterator() : rest->second.find("step");
  const bool there = rest != files.end() && step != rest->second.end() &&
                     step->second.type == ElementType::kI64 && step->second.shape.empty();
  const int64_t k = there ? Get<int64_t>(rest->second, "step") : -1;
  if (k >= 0 && static_cast<uint64_t>(k) <= state->predicted.samples) {
    state->step = static_cast<uint64_t>(k);
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kDataLoss, "{}: it lacks the step, or that is none of this job",
               kRestOfState);
}

}  // namespace

Scalars ScalarsOf(const State& state) {
  std::vector<double> sums = state.metrics.sums;
  sums.resize(state.layout->scalars().size());
  std::vector<int64_t> counts;
  for (size_t i = 0; i < sums.size(); ++i) {
    counts.push_back(state.layout->scalars()[i].counts ? static_cast<int64_t>(sums[i]) : 0);
  }
  const auto number = [](uint64_t value) { return static_cast<int64_t>(value); };
  std::vector<int64_t> counters;
  for (const auto& [name, start] : state.layout->counters()) {
    counters.push_back(start + number(state.updates));
  }
  std::vector<std::array<int64_t, 3>> watch_counts;
  std::vector<std::array<double, 2>> watch_values;
  for (const Watched& each : state.watched) {
    watch_counts.push_back({number(each.looked), number(each.best_step), number(each.stale)});
    watch_values.push_back({each.best, each.reference});
  }
  return {.step = static_cast<int64_t>(state.step),
          .updates = static_cast<int64_t>(state.updates),
          .loss_scale = state.loss_scale.value,
          .good_steps = state.loss_scale.good_steps,
          .epoch = static_cast<int64_t>(state.metrics.epoch),
          .samples = static_cast<int64_t>(state.metrics.samples),
          .sums = std::move(sums),
          .counts = std::move(counts),
          .counters = std::move(counters),
          .link_sums = state.link.sums.bytes(),
          .watch_counts = std::move(watch_counts),
          .watch_values = std::move(watch_values)};
}

std::map<std::string, TensorViews> TensorsOf(const State& state, const Scalars& scalars) {
  std::map<std::string, TensorViews> files;
  files[kOptimizer];  // there even when the optimizer has no slots
  VisitFloats(state, [&](const char* file, const std::string& name, const graph::Shape& shape,
                         std::span<const float> values) {
    files[file][name] = {ElementType::kF32, shape, Bytes(values)};
  });
  const StateLayout& layout = *state.layout;
  for (const char* file : {kModel, kAverage}) {
    if (file == kAverage && !layout.averages()) continue;
    TensorViews& tensors = files[file];
    for (const auto& [name, tensor] : layout.aliases()) tensors[name] = tensors.at(tensor);
    const int64_t* counter = scalars.counters.data();
    for (const auto& [name, start] : layout.counters()) {
      tensors[name] = Scalar(ElementType::kI64, *counter++);
    }
  }
  TensorViews& rest = files[kRestOfState];
  for (const exact::TensorRange& range : layout.blocks().tensors()) {
    const auto values = state.units.exponents().subspan(range.first_block, range.block_count);
    const auto blocks = static_cast<int64_t>(range.block_count);
    rest[ExponentsName(layout, range.tensor)] = {ElementType::kI16, {blocks}, Bytes(values)};
  }
  const std::map<const char*, const int64_t*> numbers = {{"step", &scalars.step},
                                                         {"updates", &scalars.updates},
                                                         {"loss_scale", &scalars.loss_scale},
                                                         {"good_steps", &scalars.good_steps},
                                                         {"epoch", &scalars.epoch},
                                                         {"samples", &scalars.samples}};
  for (const auto& [name, number] : numbers) rest[name] = Scalar(ElementType::kI64, *number);
  for (size_t i = 0; i < layout.scalars().size(); ++i) {
    const StateLayout::Scalar& scalar = layout.scalars()[i];
    rest[kMetrics + scalar.name] = scalar.counts ? Scalar(ElementType::kI64, scalars.counts[i])
                                                 : Scalar(ElementType::kF64, scalars.sums[i]);
  }
  for (size_t i = 0; i < state.watched.size(); ++i) {
    const std::string name = kWatch + state.watched[i].name + "/";
    for (size_t j = 0; j < kWatchCounts.size(); ++j) {
      rest[name + kWatchCounts[j]] = Scalar(ElementType::kI64, scalars.watch_counts[i][j]);
    }
    for (size_t j = 0; j < kWatchValues.size(); ++j) {
      rest[name + kWatchValues[j]] = Scalar(ElementType::kF64, scalars.watch_values[i][j]);
    }
  }
  const auto bytes = [](const auto& values) -> TensorView {
    return {ElementType::kU8, {static_cast<int64_t>(values.size())}, values};
  };
  rest["digest"] = bytes(state.digest);
  rest["digest_before"] = bytes(state.link.before);
  rest["class_maps"] = bytes(state.link.maps);
  rest["sums"] = bytes(scalars.link_sums);
  return files;
}

Status SetTensors(const std::map<std::string, TensorViews>& files, State* state,
                  const ForEachPiece& for_each) {
  if (!state->rows.empty()) RING_RETURN_IF_ERROR(SetStep(files, state));
  const Scalars scalars = ScalarsOf(*state);
  for (const auto& [file, expected] : TensorsOf(*state, scalars)) {
    const auto found = files.find(file);
    if (found == files.end()) {
      return Error(absl::StatusCode::kDataLoss, "the checkpoint lacks {}", file);
    }
    RING_RETURN_IF_ERROR(CheckSame(file, expected, found->second));
  }
  VisitFloats(*state, [&](const char* file, const std::string& name, const graph::Shape&,
                          std::span<float> values) { Copy(files.at(file).at(name), values); });
  RING_RETURN_IF_ERROR(SetRest(files.at(kRestOfState), state));
  return CheckChain(state, for_each);
}

Status SetNumbers(const TensorViews& rest, State* state) {
  const Scalars scalars = ScalarsOf(*state);
  const auto expected = TensorsOf(*state, scalars);
  RING_RETURN_IF_ERROR(CheckSame(kRestOfState, expected.at(kRestOfState), rest));
  return SetRest(rest, state);
}

StatusOr<std::vector<CheckpointFile>> CopyState(const State& state) {
  std::vector<CheckpointFile> files;
  const Scalars scalars = ScalarsOf(state);
  for (const auto& [name, views] : TensorsOf(state, scalars)) {
    RING_ASSIGN_OR_RETURN(std::string bytes, WriteSafetensors(views));
    files.push_back({name, std::move(bytes)});
  }
  return files;
}

namespace {

StatusOr<std::map<std::string, TensorViews>> ViewsOf(const std::vector<CheckpointFile>& files) {
  std::map<std::string, TensorViews> found;
  for (const CheckpointFile& file : files) {
    if (file.name == kManifestName) continue;
    StatusOr<TensorViews> views = ReadSafetensors(file.bytes);
    RING_RETURN_IF_ERROR(Annotate(views.status(), file.name));
    found.emplace(file.name, *std::move(views));
  }
  return found;
}

// Of another job's state: what that one watched and this one does not is left out, what only this
// one watches begins anew.
Status SetContinued(const std::vector<CheckpointFile>& files, State* state) {
  RING_ASSIGN_OR_RETURN(auto found, ViewsOf(files));
  TensorViews& rest = found[kRestOfState];
  std::vector<Watched> all = std::exchange(state->watched, {});
  for (const Watched& each : all) {
    if (rest.contains(kWatch + each.name + "/looked")) state->watched.push_back(each);
  }
  std::erase_if(rest, [&](const auto& entry) {
    return entry.first.starts_with(kWatch) &&
           std::ranges::none_of(state->watched, [&](const Watched& each) {
             return entry.first.starts_with(kWatch + each.name + "/");
           });
  });
  RING_RETURN_IF_ERROR(SetTensors(found, state));
  for (Watched& each : all) {
    const auto known = std::ranges::find(state->watched, each.name, &Watched::name);
    if (known != state->watched.end()) each = *known;
  }
  state->watched = std::move(all);
  return absl::OkStatus();
}

}  // namespace

Status SetState(const std::vector<CheckpointFile>& files, State* state) {
  RING_ASSIGN_OR_RETURN(const auto found, ViewsOf(files));
  return SetTensors(found, state);
}

Status RestoreState(const Checkpoint& checkpoint, const v1::ResultSpec& spec, State* state) {
  RING_ASSIGN_OR_RETURN(const ManifestFacts facts, VerifyCheckpoint(checkpoint));
  const Sha256Digest expected = job::ResultDigest(spec);
  const bool continued = spec.has_continues() && spec.continues().manifest_sha256() ==
                                                     Hex(Sha256Of(checkpoint.files.back().bytes));
  if (facts.result_digest != expected && !continued) {
    return FailedPrecondition("the checkpoint belongs to another job: expected {}, got {}",
                              Hex(expected), Hex(facts.result_digest));
  }
  RING_RETURN_IF_ERROR(continued ? SetContinued(checkpoint.files, state)
                                 : SetState(checkpoint.files, state));
  if (state->step == facts.step && state->digest == facts.digest) return absl::OkStatus();
  return DataLoss("step or digest of manifest.json and state.safetensors differ");
}

}  // namespace ringmaster::worker
