// What a field of a graph's message may be by itself. Thread-safe (constants and free functions).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "common/graph/tensor_type.h"
#include "common/status.h"
#include "ringmaster/v1/graph.pb.h"

namespace ringmaster::graph {

inline constexpr int kMaxRank = 7;
inline constexpr size_t kMaxName = 200, kMaxSegment = 64, kMaxSegments = 16;
inline constexpr int64_t kMaxElements = int64_t{1} << 40;  // of a tensor, of one sample

[[nodiscard]] inline bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-';
}

// [a-z][a-z0-9_]{0,63}: what people write in job files.
[[nodiscard]] inline bool IsWord(const std::string& name) {
  const auto small = [](char c) { return c >= 'a' && c <= 'z'; };
  if (name.empty() || name.size() > kMaxSegment || !small(name[0])) return false;
  return std::all_of(name.begin(), name.end(),
                     [&](char c) { return small(c) || (c >= '0' && c <= '9') || c == '_'; });
}

[[nodiscard]] inline Status CheckCount(const char* what, int count, int least, int most) {
  if (count >= least && count <= most) return absl::OkStatus();
  return InvalidArgument("the graph has {} {}; {} to {} are allowed", count, what, least, most);
}

// The elements, or -1 when there are too many or an extent is below 1.
[[nodiscard]] inline int64_t CheckedElements(
    const google::protobuf::RepeatedField<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t extent : shape) {
    if (extent < 1 || extent > kMaxElements / elements) return -1;
    elements *= extent;
  }
  return elements;
}

[[nodiscard]] inline StatusOr<Shape> CheckedShape(
    const std::string& name, const google::protobuf::RepeatedField<int64_t>& shape) {
  if (shape.size() <= kMaxRank && CheckedElements(shape) > 0) {
    return Shape(shape.begin(), shape.end());
  }
  return InvalidArgument(
      "{}: a shape of {} extents; expected at most {}, each at least 1, and "
      "under 2^40 elements",
      name, shape.size(), kMaxRank);
}

}  // namespace ringmaster::graph
