// The inner loops of quantize and codec, one table for each instruction set; every table gives
// identical bits. Sums and the ring are given a table and call the functions below; who wants the
// best one uses quantize.h and codec.h. Thread-safe (constant tables, free functions). The tables'
// pack and unpack know whole blocks of 256 elements and widths up to 32 only: codec.cc makes short
// and wide blocks of these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/exact/arithmetic.h"
#include "common/exact/quantize.h"

namespace ringmaster::exact {

inline constexpr int kWidths = 17;  // 0, 2, ... 32: the index into a table is width / 2

// Of blocks whose elements are int64 (wide) or int32 (narrow).
template <typename T>
struct IntegerKernels {
  // float32(q) * scale.
  void (*dequantize)(const T* q, size_t count, float scale, float* out);
  // Bits that hold every element in two's complement, odd ones too; 0 only when all are zero.
  int (*bits)(const T* block, size_t count);
  // 256 elements at widths 2, 4, ... 32 (entry 0 is null): 32 * width bytes.
  void (*pack[kWidths])(const T* block, uint8_t* out);
  void (*unpack[kWidths])(const uint8_t* in, T* block);
  // sums = addends + what was packed, modulo 2^64 or 2^32; `sums` may be `addends`. As `bits`, of
  // the sums.
  int (*unpack_sum[kWidths])(const uint8_t* in, const T* addends, T* sums);
};

struct Kernels {
  const char* name;
  // Adds q to sums; true when a value was refused.
  bool (*quantize_add)(const float* gradient, size_t count, Quantization quantization,
                       int64_t* sums);
  // The same where every magnitude's bits are below `limit`, at most NarrowLimit(quantization), so
  // that |q| < 2^30; else it is false, and nothing happens. Addends are at most 2^30; `sums` may be
  // they. `*bits`: of the sums after it, as above.
  bool (*quantize_add_narrow)(const float* gradient, size_t count, Quantization quantization,
                              uint32_t limit, const int32_t* addends, int32_t* sums, int* bits);
  // units.h, of at most 256 elements.
  uint32_t (*largest_magnitude)(const float* values, size_t count);
  IntegerKernels<int64_t> wide;
  IntegerKernels<int32_t> narrow;
};

[[nodiscard]] const Kernels& PortableKernels();
[[nodiscard]] const Kernels& Avx2Kernels();  // the floor of every build
// F, BW, DQ, VL and VBMI2 (Ice Lake, Zen 4 and later); null on other processors.
[[nodiscard]] const Kernels* Avx512Kernels();
// The widest that this processor has.
[[nodiscard]] const Kernels& BestKernels();

// What the functions of codec.h and quantize.h do, with the kernels named; int32 elements pack at
// up to 32.
[[nodiscard]] int Width(const Kernels& kernels, std::span<const int64_t> block);
[[nodiscard]] int Width(const Kernels& kernels, std::span<const int32_t> block);
void Pack(const Kernels& kernels, std::span<const int64_t> block, int width, uint8_t* out);
void Pack(const Kernels& kernels, std::span<const int32_t> block, int width, uint8_t* out);
void Unpack(const Kernels& kernels, const uint8_t* in, int width, std::span<int64_t> block);
void Unpack(const Kernels& kernels, const uint8_t* in, int width, std::span<int32_t> block);
// sums[i] = addends[i] + what was packed, modulo 2^64 or 2^32; `sums` may be the addends. Their
// Width.
int UnpackSum(const Kernels& kernels, const uint8_t* in, int width,
              std::span<const int64_t> addends, int64_t* sums);
int UnpackSum(const Kernels& kernels, const uint8_t* in, int width,
              std::span<const int32_t> addends, int32_t* sums);
[[nodiscard]] FlagKind QuantizeAdd(const Kernels& kernels, std::span<const float> gradient,
                                   int unit_exponent, float gradient_scale, uint32_t shards,
                                   int64_t* sums);
// sums = addends + q on addends of at most 31 bits, where every |q| is less than 2^30: then none of
// it can wrap, and `*bits` is how many bits the largest sum has now, at most 32. Else false, and
// nothing changes.
[[nodiscard]] bool QuantizeAddNarrow(const Kernels& kernels, std::span<const float> gradient,
                                     int unit_exponent, float gradient_scale, uint32_t shards,
                                     const int32_t* addends, int32_t* sums, int* bits);
void Dequantize(const Kernels& kernels, std::span<const int64_t> q, int unit_exponent, float* out);
void Dequantize(const Kernels& kernels, std::span<const int32_t> q, int unit_exponent, float* out);

}  // namespace ringmaster::exact
