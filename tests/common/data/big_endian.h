// Words as the headers of IDX files have them. Thread-safe (free functions).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

namespace ringmaster::data {

[[nodiscard]] inline std::string BigEndian(std::initializer_list<uint32_t> words) {
  std::string bytes;
  for (const uint32_t word : words) {
    for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(word >> shift & 0xFF);
  }
  return bytes;
}

}  // namespace ringmaster::data
