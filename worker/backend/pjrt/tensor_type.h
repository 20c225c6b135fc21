// What a tensor that crosses between host and device is: four bytes an element, dense, row-major.
// A value. Knows neither emitter nor plugin, so that both processes can speak of it.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ringmaster::pjrt {

enum class Element : uint8_t { kInt32, kUInt32, kFloat32 };
inline constexpr size_t kElementBytes = 4;

struct TensorType {
  Element element = Element::kFloat32;
  std::vector<int64_t> dims;

  [[nodiscard]] size_t bytes() const {
    size_t bytes = kElementBytes;
    for (const int64_t dim : dims) bytes *= static_cast<size_t>(dim);
    return bytes;
  }
  // f32[4x5]; f32[] is a scalar.
  [[nodiscard]] std::string Text() const {
    const char* const name = element == Element::kInt32    ? "s32"
                             : element == Element::kUInt32 ? "u32"
                                                           : "f32";
    return fmt::format("{}[{}]", name, fmt::join(dims, "x"));
  }
  bool operator==(const TensorType&) const = default;

  template <typename Visit>
  void Fields(Visit& visit) {
    visit(element);
    visit(dims);
  }
};

}  // namespace ringmaster::pjrt
