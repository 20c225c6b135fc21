// Reading at a place of a file. Thread-safe (free functions).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/status.h"

namespace ringmaster::data {

// Reads as many bytes as there are from `offset` on, at most bytes.size(). UNAVAILABLE says what
// the system says.
[[nodiscard]] StatusOr<size_t> ReadUpTo(int descriptor, uint64_t offset, std::span<uint8_t> bytes);

// Reads exactly bytes.size(). DATA_LOSS also when the file ends before.
[[nodiscard]] Status ReadExactly(int descriptor, uint64_t offset, std::span<uint8_t> bytes);

}  // namespace ringmaster::data
