#include "common/crc32c.h"

#include <nmmintrin.h>

#include <array>
#include <cstring>

namespace ringmaster {
namespace {

// The instruction has three cycles of latency and one of throughput, so three stripes of a block
// are summed side by side and then joined: a checksum is linear over GF(2), and kShift is the
// linear map "followed by kStripe zero bytes", tabulated by byte.
constexpr size_t kStripe = 2048;
constexpr uint32_t kReflectedPolynomial = 0x82f63b78;

constexpr uint32_t AfterZeroByte(uint32_t crc) {
  for (int bit = 0; bit < 8; ++bit) {
    crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReflectedPolynomial : 0);
  }
  return crc;
}

using ShiftTable = std::array<std::array<uint32_t, 256>, 4>;

constexpr ShiftTable MakeShiftTable() {
  std::array<uint32_t, 32> image{};
  for (size_t bit = 0; bit < 32; ++bit) {
    uint32_t crc = uint32_t{1} << bit;
    for (size_t i = 0; i < kStripe; ++i) crc = AfterZeroByte(crc);
    image[bit] = crc;
  }
  ShiftTable table{};
  for (size_t byte = 0; byte < 4; ++byte) {
    for (uint32_t value = 0; value < 256; ++value) {
      for (size_t bit = 0; bit < 8; ++bit) {
        if ((value >> bit & 1) != 0) table[byte][value] ^= image[8 * byte + bit];
      }
    }
  }
  return table;
}

constexpr ShiftTable kShift = MakeShiftTable();

uint32_t Shift(uint32_t crc) {
  return kShift[0][crc & 255] ^ kShift[1][crc >> 8 & 255] ^ kShift[2][crc >> 16 & 255] ^
         kShift[3][crc >> 24];
}

uint64_t Word(const uint8_t* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

}  // namespace

uint32_t ExtendCrc32c(uint32_t crc, std::span<const uint8_t> bytes) {
  const uint8_t* p = bytes.data();
  size_t left = bytes.size();
  uint64_t a = ~crc;
  for (; left >= 3 * kStripe; p += 3 * kStripe, left -= 3 * kStripe) {
    uint64_t b = 0;
    uint64_t c = 0;
    for (size_t i = 0; i < kStripe; i += 8) {
      a = _mm_crc32_u64(a, Word(p + i));
      b = _mm_crc32_u64(b, Word(p + kStripe + i));
      c = _mm_crc32_u64(c, Word(p + 2 * kStripe + i));
    }
    a = Shift(Shift(static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b)) ^ c;
  }
  for (; left >= 8; p += 8, left -= 8) a = _mm_crc32_u64(a, Word(p));
  uint32_t tail = static_cast<uint32_t>(a);
  for (; left != 0; ++p, --left) tail = _mm_crc32_u8(tail, *p);
  return ~tail;
}

}  // namespace ringmaster
