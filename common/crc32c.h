// CRC-32C (Castagnoli polynomial 0x1EDC6F41, reflected; RFC 3720 appendix B.4 has test vectors) by
// the processor's instruction, or by carry-less multiplication where that is wider. Thread-safe
// (free functions).
#pragma once

#include <cstdint>
#include <span>

namespace ringmaster {

// The checksum of everything that gave `crc` followed by `bytes`; 0 is the checksum of nothing.
[[nodiscard]] uint32_t ExtendCrc32c(uint32_t crc, std::span<const uint8_t> bytes);

// As TFRecord and event files store a checksum (tensorflow.org, TFRecord tutorial): one of bytes
// that hold checksums would say little.
[[nodiscard]] constexpr uint32_t MaskedCrc32c(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8;
}

}  // namespace ringmaster
