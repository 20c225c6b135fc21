// The input of a target that takes several messages: numbers and texts, one after the other, each
// taken from what is left. Where nothing is left it gives zeros. A value over bytes that outlive
// it; thread-compatible.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace ringmaster::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(data, size) {}

  [[nodiscard]] bool empty() const { return rest_.empty(); }
  uint8_t Byte() {
    const std::span<const uint8_t> taken = Bytes(1);
    return taken.empty() ? 0 : taken[0];
  }
  std::span<const uint8_t> Bytes(size_t most) {
    const std::span<const uint8_t> taken = rest_.first(std::min(most, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  // With its length in front, two bytes, little-endian.
  std::string Text() {
    const size_t low = Byte();
    const std::span<const uint8_t> taken = Bytes(low | static_cast<size_t>(Byte()) << 8);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

 private:
  std::span<const uint8_t> rest_;
};

}  // namespace ringmaster::fuzz
