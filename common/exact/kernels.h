// The inner loops of quantize and codec, one table for each instruction set; every table gives
// identical bits. Internal to this folder and its tests: callers use quantize.h and codec.h.
// Thread-safe (constant tables, free functions). Pack and unpack know whole blocks of 256 elements
// and widths up to 32 only: codec.cc makes short and wide blocks of these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/exact/arithmetic.h"
#include "common/exact/quantize.h"

namespace ringmaster::exact {

inline constexpr int kWidths = 17;  // 0, 2, ... 32: the index into a table is width / 2

struct Kernels {
  const char* name;
  // Adds q to sums; true when a value was refused.
  bool (*quantize_add)(const float* gradient, size_t count, Quantization quantization,
                       int64_t* sums);
  // float32(q) * scale.
  void (*dequantize)(const int64_t* q, size_t count, float scale, float* out);
  // Bits that hold every element in two's complement, odd ones too; 0 only when all are zero.
  int (*bits)(const int64_t* block, size_t count);
  // 256 elements at widths 2, 4, ... 32 (entry 0 is null): 32 * width bytes.
  void (*pack[kWidths])(const int64_t* block, uint8_t* out);
  void (*unpack[kWidths])(const uint8_t* in, int64_t* block);
  void (*unpack_add[kWidths])(const uint8_t* in, int64_t* block);
};

[[nodiscard]] const Kernels& PortableKernels();
[[nodiscard]] const Kernels& Avx2Kernels();  // the floor of every build
// F, BW, DQ, VL and VBMI2 (Ice Lake, Zen 4 and later); null on other processors.
[[nodiscard]] const Kernels* Avx512Kernels();
// The widest that this processor has.
[[nodiscard]] const Kernels& BestKernels();

// What the functions of codec.h and quantize.h do, with the kernels named.
[[nodiscard]] int Width(const Kernels& kernels, std::span<const int64_t> block);
void Pack(const Kernels& kernels, std::span<const int64_t> block, int width, uint8_t* out);
void Unpack(const Kernels& kernels, const uint8_t* in, int width, std::span<int64_t> block);
void UnpackAdd(const Kernels& kernels, const uint8_t* in, int width, std::span<int64_t> block);
[[nodiscard]] FlagKind QuantizeAdd(const Kernels& kernels, std::span<const float> gradient,
                                   int unit_exponent, float gradient_scale, uint32_t shards,
                                   int64_t* sums);
void Dequantize(const Kernels& kernels, std::span<const int64_t> q, int unit_exponent, float* out);

}  // namespace ringmaster::exact
