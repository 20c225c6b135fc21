#include "common/crc32c.h"

#if defined(__GNUC__) && !defined(__clang__)
// g++ 12 takes the deliberately undefined vectors inside its own intrinsics for mistakes of ours.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

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

// `state` is the register, without the inversions at either end.
uint32_t Extend(uint32_t state, const uint8_t* p, size_t left) {
  uint64_t a = state;
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
  return tail;
}

// Folding (Gopal and others, "Fast CRC computation for generic polynomials using PCLMULQDQ
// instruction", 2009): a message is a polynomial over GF(2), and 16 bytes of it may be replaced by
// another 16 bytes kFolded bytes further on, with the same remainder: times x^(8 kFolded) mod P.
// Bits are reflected: of the first 8 bytes the exponent is 64 higher, and the product of two
// reflected words lies one bit lower, which is one power of x less.
constexpr size_t kFolded = 256;

constexpr uint64_t PowerOfX(size_t exponent) {
  uint32_t power = uint32_t{1} << 31;  // x^0
  for (size_t i = 0; i < exponent; ++i) {
    power = (power >> 1) ^ ((power & 1) != 0 ? kReflectedPolynomial : 0);
  }
  return uint64_t{power} << 32;
}

constexpr uint64_t kFoldFirst = PowerOfX(8 * kFolded + 64 - 1);
constexpr uint64_t kFoldSecond = PowerOfX(8 * kFolded - 1);

#define RING_WIDE_CRC __attribute__((target("avx512f,vpclmulqdq")))

RING_WIDE_CRC __attribute__((always_inline)) inline __m512i Fold(__m512i x, __m512i keys,
                                                                 const uint8_t* next) {
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, keys, 0x00),
                                   _mm512_clmulepi64_epi128(x, keys, 0x11),
                                   _mm512_loadu_si512(next), 0x96);  // a ^ b ^ c
}

// Of `left` bytes, at least kFolded; those that remain are fewer.
RING_WIDE_CRC uint32_t ExtendWide(uint32_t state, const uint8_t** at, size_t* left) {
  const uint8_t* p = *at;
  const __m512i keys = _mm512_broadcast_i32x4(
      _mm_set_epi64x(static_cast<int64_t>(kFoldSecond), static_cast<int64_t>(kFoldFirst)));
  __m512i a = _mm512_xor_si512(_mm512_loadu_si512(p),
                               _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
  __m512i b = _mm512_loadu_si512(p + 64);
  __m512i c = _mm512_loadu_si512(p + 128);
  __m512i d = _mm512_loadu_si512(p + 192);
  size_t rest = *left - kFolded;
  for (p += kFolded; rest >= kFolded; p += kFolded, rest -= kFolded) {
    a = Fold(a, keys, p);
    b = Fold(b, keys, p + 64);
    c = Fold(c, keys, p + 128);
    d = Fold(d, keys, p + 192);
  }
  alignas(64) uint8_t tail[kFolded];
  _mm512_store_si512(tail, a);
  _mm512_store_si512(tail + 64, b);
  _mm512_store_si512(tail + 128, c);
  _mm512_store_si512(tail + 192, d);
  *at = p;
  *left = rest;
  return Extend(0, tail, kFolded);
}

bool HasWide() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
  return has;
}

}  // namespace

uint32_t ExtendCrc32c(uint32_t crc, std::span<const uint8_t> bytes) {
  const uint8_t* p = bytes.data();
  size_t left = bytes.size();
  uint32_t state = ~crc;
  if (left >= 4 * kFolded && HasWide()) state = ExtendWide(state, &p, &left);
  return ~Extend(state, p, left);
}

}  // namespace ringmaster
