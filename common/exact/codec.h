// Lossless packing of one block of integers at the smallest even width (docs/ring.md): vertical
// bit streams of 16 lanes; lane l holds elements l, l + 16, ...; each lane is a little-endian
// stream of 32-bit words and word w of all lanes lies together (64 bytes). A short block packs
// ceil(n/16) rows. Widths over 32 pack the low 32 bits as whole words and then the upper part at
// width - 32.
// Thread-safe (free functions); same bytes on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/exact/arithmetic.h"

namespace ringmaster::exact {

// Smallest even number of bits, 0 to 64, that holds every element in two's complement; 0 only when
// all are zero.
[[nodiscard]] int Width(std::span<const int64_t> block);

// Whether a width read from the wire is one: even, 0 to 64. What follows takes valid widths only.
[[nodiscard]] constexpr bool ValidWidth(int width) {
  return width >= 0 && width <= 64 && width % 2 == 0;
}

// Bytes that `count` elements (1 to 256) take at an even width from 0 to 64; a multiple of 64.
[[nodiscard]] constexpr size_t PackedBytes(int width, size_t count) {
  return PlaneBytes(LowWidth(width), RowsOf(count)) + PlaneBytes(HighWidth(width), RowsOf(count));
}

// Writes PackedBytes(width, block.size()) bytes to `out`.
void Pack(std::span<const int64_t> block, int width, uint8_t* out);
// Reads them again: block.size() elements. `in` may be unaligned; nothing past its end is read.
void Unpack(const uint8_t* in, int width, std::span<int64_t> block);

}  // namespace ringmaster::exact
