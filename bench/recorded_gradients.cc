#include "bench/recorded_gradients.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <utility>

#include "common/safetensors.h"

namespace ringmaster::bench {
namespace {

constexpr int kLeastUnit = -40, kMostUnit = 119;  // of QuantizeAdd

template <typename T>
TensorView ViewOf(ElementType type, const std::vector<T>& values) {
  return {type,
          {static_cast<int64_t>(values.size())},
          {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)}};
}

std::string ShardName(size_t shard) { return fmt::format("shard{}", shard); }

template <typename T>
StatusOr<std::vector<T>> Take(const TensorViews& views, const std::string& name, ElementType type) {
  const auto found = views.find(name);
  if (found == views.end() || found->second.type != type || found->second.shape.size() != 1) {
    return Error(absl::StatusCode::kDataLoss, "tensor {}: expected one axis of {}, got {}", name,
                 Name(type), found == views.end() ? "none" : "another");
  }
  std::vector<T> values(found->second.bytes.size() / sizeof(T));
  std::memcpy(values.data(), found->second.bytes.data(), found->second.bytes.size());
  return values;
}

Status Check(const RecordedGradients& recorded) {
  RING_ASSIGN_OR_RETURN(const exact::BlockLayout layout, LayoutOf(recorded));
  if (recorded.unit_exponents.size() != layout.block_count()) {
    return Error(absl::StatusCode::kDataLoss,
                 "{} unit_exponents, expected one for each of {} blocks",
                 recorded.unit_exponents.size(), layout.block_count());
  }
  for (const int16_t exponent : recorded.unit_exponents) {
    if (exponent >= kLeastUnit && exponent <= kMostUnit) continue;
    return Error(absl::StatusCode::kDataLoss, "unit_exponents: expected {} to {}, got {}",
                 kLeastUnit, kMostUnit, exponent);
  }
  for (size_t shard = 0; shard < recorded.shards.size(); ++shard) {
    if (recorded.shards[shard].size() == layout.arena_elements()) continue;
    return Error(absl::StatusCode::kDataLoss, "{} has {} numbers, expected {}", ShardName(shard),
                 recorded.shards[shard].size(), layout.arena_elements());
  }
  return absl::OkStatus();
}

StatusOr<RecordedGradients> Parse(const std::string& file) {
  RING_ASSIGN_OR_RETURN(const TensorViews views, ReadSafetensors(file));
  RecordedGradients recorded;
  RING_ASSIGN_OR_RETURN(const std::vector<int64_t> elements,
                        Take<int64_t>(views, "elements", ElementType::kI64));
  for (const int64_t each : elements) {
    if (each < 1 || each > int64_t{1} << 40) {
      return Error(absl::StatusCode::kDataLoss, "elements: a tensor has {}", each);
    }
    recorded.elements.push_back(static_cast<uint64_t>(each));
  }
  RING_ASSIGN_OR_RETURN(recorded.unit_exponents,
                        Take<int16_t>(views, "unit_exponents", ElementType::kI16));
  for (size_t shard = 0; shard == 0 || views.contains(ShardName(shard)); ++shard) {
    RING_ASSIGN_OR_RETURN(std::vector<float> values,
                          Take<float>(views, ShardName(shard), ElementType::kF32));
    recorded.shards.push_back(std::move(values));
  }
  RING_RETURN_IF_ERROR(Check(recorded));
  return recorded;
}

}  // namespace

StatusOr<exact::BlockLayout> LayoutOf(const RecordedGradients& recorded) {
  if (recorded.elements.empty()) return InvalidArgument("no tensor was recorded");
  std::vector<exact::BlockLayout::Tensor> tensors;
  for (const uint64_t elements : recorded.elements) {
    tensors.push_back({static_cast<uint32_t>(tensors.size()), elements});
  }
  return exact::BlockLayout::Create(tensors);
}

Status WriteGradients(const RecordedGradients& recorded, const std::string& path) {
  RING_RETURN_IF_ERROR(Check(recorded));
  const std::vector<int64_t> elements(recorded.elements.begin(), recorded.elements.end());
  TensorViews views;
  views["elements"] = ViewOf(ElementType::kI64, elements);
  views["unit_exponents"] = ViewOf(ElementType::kI16, recorded.unit_exponents);
  for (size_t shard = 0; shard < recorded.shards.size(); ++shard) {
    views[ShardName(shard)] = ViewOf(ElementType::kF32, recorded.shards[shard]);
  }
  RING_ASSIGN_OR_RETURN(const std::string bytes, WriteSafetensors(views));
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  if (file.good()) return absl::OkStatus();
  return Error(absl::StatusCode::kUnavailable,
               "{}: cannot write it: is there such a folder, and room?", path);
}

StatusOr<RecordedGradients> ReadGradients(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return Error(absl::StatusCode::kUnavailable,
                 "{}: cannot read it; bench/record_gradients writes such a file", path);
  }
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  StatusOr<RecordedGradients> recorded = Parse(bytes);
  if (!recorded.ok()) return Annotate(recorded.status(), path);
  return recorded;
}

}  // namespace ringmaster::bench
