#include "worker/backend/cpu/weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "worker/backend/cpu/device.h"
#include "worker/backend/cpu/layout.h"
#include "worker/backend/cpu/strips.h"

namespace ringmaster::cpu {
namespace {

std::vector<graph::Shape> ParameterShapes(const graph::Program& program) {
  std::vector<graph::Shape> shapes;
  for (const graph::Parameter& parameter : program.parameters) shapes.push_back(parameter.shape);
  for (const graph::Parameter& parameter : program.frozen) shapes.push_back(parameter.shape);
  return shapes;
}

bool NeedsRounding(graph::DType dtype, const dnnl::memory::desc& desc) {
  return dtype != graph::DType::kFloat32 && desc.data.data_type == dnnl_f32;
}

// To the nearest values of T.
template <typename T>
void RoundTo(const float* from, float* to, int64_t count) {
  T narrow[kStrip];
  for (int64_t at = 0; at < count; at += kStrip) {
    const int64_t length = std::min(kStrip, count - at);
    Convert(from + at, narrow, length);
    Convert(narrow, to + at, length);
  }
}

}  // namespace

CpuWeights::CpuWeights(const graph::Program& training, const Device& device)
    : device_(device),
      shapes_(ParameterShapes(training)),
      sizes_(training),
      masters_(shapes_.size()),
      followers_(shapes_.size()) {
  for (const graph::Normalization& normalization : training.normalizations) {
    const size_t bytes = sizeof(float) * static_cast<size_t>(normalization.channels);
    statistics_.push_back({normalization.channels, AlignedBuffer(bytes), AlignedBuffer(bytes)});
  }
}

Status CpuWeights::Refresh(const exact::BlockLayout& layout, std::span<const float> parameters,
                           std::span<const float> moving_means,
                           std::span<const float> moving_variances) {
  RING_RETURN_IF_ERROR(sizes_.Check(layout, parameters, moving_means, moving_variances));
  for (uint32_t p = 0; p < sizes_.parameters.size(); ++p) {
    SetMaster(p, parameters.data() + layout.tensor(p).offset());
  }
  size_t offset = 0;
  for (Statistics& statistics : statistics_) {
    std::memcpy(statistics.mean.data(), moving_means.data() + offset, statistics.mean.size());
    std::memcpy(statistics.variance.data(), moving_variances.data() + offset,
                statistics.variance.size());
    offset += static_cast<size_t>(statistics.channels);
  }
  const uint64_t former = version_.fetch_add(1);
  const bool updated = std::exchange(updated_, false);
  stale_.clear();
  for (auto& followers : followers_) followers.clear();
  MutexLock lock(mu_);
  for (const auto& copy : copies_) {
    MutexLock copy_lock(copy->mu_);
    const int64_t followed = copy->followed_.exchange(0);
    const bool used = former > 0 && copy->version_ == former;
    if (!used || copy->parameter_ >= sizes_.parameters.size()) continue;
    const bool whole = copy->tiles_ && followed == copy->tiles_->bands();
    if (updated && whole) {
      copy->version_ = former + 1;
    } else {
      stale_.push_back(copy.get());
    }
    // Where bands and the pieces of updates do not match, it is not tried again.
    copy->follows_ = copy->follows_ && !(updated && followed > 0 && !whole);
    if (copy->tiles_ && copy->rounded_.size() == 0 && copy->follows_) {
      followers_[copy->parameter_].push_back(copy.get());
    }
  }
  return absl::OkStatus();
}

void CpuWeights::BeginUpdate() {
  updated_ = false;
  for (const auto& followers : followers_) {
    for (WeightCopy* const copy : followers) copy->followed_.store(0);
  }
}

size_t CpuWeights::FollowedUnit(uint32_t parameter) const {
  int64_t unit = 1;  // bands are of two rows or of a tile's
  for (const WeightCopy* const copy : followers_[parameter]) {
    unit = std::max(unit, copy->tiles_->band_elements());
  }
  return static_cast<size_t>(unit);
}

void CpuWeights::Follow(uint32_t parameter, const float* values, const UpdatedRange& range) {
  for (WeightCopy* const copy : followers_[parameter]) {
    const auto band = static_cast<size_t>(copy->tiles_->band_elements());
    if (range.begin % band != 0) continue;
    const auto first = static_cast<int64_t>(range.from / band);
    const auto end = static_cast<int64_t>(range.to / band);
    copy->tiles_->Fill(values, copy->buffer_.data(), first, end);
    copy->followed_.fetch_add(end - first, std::memory_order_relaxed);
  }
}

void CpuWeights::EndUpdate() { updated_ = true; }

Status CpuWeights::LoadFrozen(std::span<const float> values) {
  RING_RETURN_IF_ERROR(sizes_.CheckFrozen(values));
  for (size_t i = 0; i < sizes_.frozen_offsets.size(); ++i) {
    SetMaster(sizes_.parameters.size() + i, values.data() + sizes_.frozen_offsets[i]);
  }
  frozen_version_.fetch_add(1);
  return absl::OkStatus();
}

void CpuWeights::SetMaster(size_t number, const float* values) {
  if (std::exchange(masters_[number], values) != values) ++moves_;
}

StatusOr<WeightCopy*> CpuWeights::Copy(uint32_t parameter, graph::DType dtype,
                                       const std::optional<dnnl::memory::desc>& desc) {
  MutexLock lock(mu_);
  for (const auto& copy : copies_) {
    if (copy->parameter_ == parameter && copy->dtype_ == dtype && copy->desc_ == desc) {
      return copy.get();
    }
  }
  auto copy = std::make_unique<WeightCopy>();
  copy->parameter_ = parameter;
  copy->dtype_ = dtype;
  copy->desc_ = desc;
  const size_t elements = static_cast<size_t>(graph::Elements(shapes_[parameter]));
  const bool canonical =
      !desc || *desc == CanonicalWeightDesc(shapes_[parameter], DnnlType::f32, GroupsOf(*desc));
  if (dtype == graph::DType::kFloat32 && canonical) {
    copy->master_ = &masters_[parameter];
  } else {
    copy->bytes_ = desc ? desc->get_size() : elements * graph::ByteSize(dtype);
    if (desc) RING_RETURN_IF_ERROR(ChooseReorder(copy.get()));
  }
  copies_.push_back(std::move(copy));
  return copies_.back().get();
}

Status CpuWeights::ChooseReorder(WeightCopy* copy) const {
  const graph::Shape& shape = shapes_[copy->parameter_];
  if (NeedsRounding(copy->dtype_, *copy->desc_)) {
    copy->rounded_bytes_ = sizeof(float) * static_cast<size_t>(graph::Elements(shape));
  }
  auto choice = GuardDnnl("reorder of weights", [&] {
    const dnnl::engine& engine = device_.engine;
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const DnnlDesc canonical = CanonicalWeightDesc(shape, DnnlType::f32, GroupsOf(*copy->desc_));
    copy->tiles_ = WeightTiles::Of(canonical, *copy->desc_);
    return dnnl::reorder::primitive_desc(engine, canonical, engine, *copy->desc_, attributes);
  });
  RING_ASSIGN_OR_RETURN(copy->choice_, std::move(choice));
  return absl::OkStatus();
}

Status CpuWeights::PrepareReorder(WeightCopy& copy) {
  auto reorder = GuardDnnl("reorder of weights", [&] {
    const dnnl::engine& engine = device_.engine;
    const dnnl::reorder::primitive_desc& choice = *copy.choice_;
    AlignedBuffer scratch(choice.scratchpad_desc().get_size());
    return WeightCopy::Reorder{dnnl::reorder(choice),
                               dnnl::memory(choice.src_desc(), engine, nullptr),
                               dnnl::memory(*copy.desc_, engine, copy.buffer_.data()),
                               dnnl::memory(choice.scratchpad_desc(), engine, scratch.data()),
                               dnnl::stream(engine),
                               std::move(scratch)};
  });
  RING_ASSIGN_OR_RETURN(copy.reorder_, std::move(reorder));
  return absl::OkStatus();
}

Status CpuWeights::Place(WeightCopy& copy) {
  if (copy.in_place()) return absl::OkStatus();
  MutexLock lock(copy.mu_);
  if (copy.buffer_.data() != nullptr) return absl::OkStatus();
  const auto made = [](size_t bytes) {
    return GuardDnnl("a copy of weights",
                     [&] { return AlignedBuffer(bytes, AlignedBuffer::Content::kAny); });
  };
  RING_ASSIGN_OR_RETURN(copy.buffer_, made(copy.bytes_));
  if (copy.rounded_bytes_ > 0) {
    RING_ASSIGN_OR_RETURN(copy.rounded_, made(copy.rounded_bytes_));
  }
  return copy.desc_ ? PrepareReorder(copy) : absl::OkStatus();
}

uint64_t CpuWeights::HostBytes() const {
  uint64_t bytes = 0;
  for (const Statistics& statistics : statistics_) {
    bytes += AlignUp(statistics.mean.size()) + AlignUp(statistics.variance.size());
  }
  MutexLock lock(mu_);
  for (const auto& copy : copies_) {
    bytes += AlignUp(copy->bytes_) + AlignUp(copy->rounded_bytes_);
    if (copy->choice_) bytes += AlignUp(copy->choice_->scratchpad_desc().get_size());
  }
  return bytes;
}

Status CpuWeights::Ensure(WeightCopy& copy) {
  const bool frozen = copy.parameter_ >= sizes_.parameters.size();
  const uint64_t version = frozen ? frozen_version_.load() : version_.load();
  if (version == 0) {
    return FailedPrecondition("weights: no values yet; {} comes before the first run",
                              frozen ? "LoadFrozen" : "Refresh");
  }
  if (copy.in_place()) return absl::OkStatus();
  MutexLock lock(copy.mu_);
  if (copy.version_ == version) return absl::OkStatus();
  // What a layout pads with stays zero.
  if (copy.version_ == 0) std::memset(copy.buffer_.data(), 0, copy.bytes_);
  RING_RETURN_IF_ERROR(Fill(copy, masters_[copy.parameter_]));
  copy.version_ = version;
  return absl::OkStatus();
}

Status CpuWeights::Fill(WeightCopy& copy, const float* master)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(copy.mu_) {
  const int64_t elements = graph::Elements(shapes_[copy.parameter_]);
  if (!copy.reorder_) {
    WithStorage(copy.dtype_, [&]<typename T>(T) {
      Convert(master, reinterpret_cast<T*>(copy.buffer_.data()), elements);
    });
    return absl::OkStatus();
  }
  if (copy.rounded_.size() > 0) {
    auto* rounded = reinterpret_cast<float*>(copy.rounded_.data());
    WithStorage(copy.dtype_, [&]<typename T>(T) { RoundTo<T>(master, rounded, elements); });
    master = rounded;
  }
  if (copy.tiles_) {
    copy.tiles_->Fill(master, copy.buffer_.data(), 0, copy.tiles_->bands());
    return absl::OkStatus();
  }
  WeightCopy::Reorder& reorder = *copy.reorder_;
  const auto done = GuardDnnl("reorder of weights", [&] {
    reorder.from.set_data_handle(const_cast<float*>(master));
    reorder.primitive.execute(reorder.stream, {{DNNL_ARG_FROM, reorder.from},
                                               {DNNL_ARG_TO, reorder.to},
                                               {DNNL_ARG_SCRATCHPAD, reorder.scratchpad}});
    reorder.stream.wait();
    return true;
  });
  return done.status();
}

const float* CpuWeights::moving_mean(size_t normalization) const {
  return reinterpret_cast<const float*>(statistics_[normalization].mean.data());
}

const float* CpuWeights::moving_variance(size_t normalization) const {
  return reinterpret_cast<const float*>(statistics_[normalization].variance.data());
}

}  // namespace ringmaster::cpu
