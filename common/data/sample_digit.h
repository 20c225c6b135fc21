// Draws one grey sample image of 28 x 28: a digit as bright strokes on a dark ground, of random
// place, size, slant, thickness and brightness, with noise. Thread-safe (free functions).
#pragma once

#include <cstdint>
#include <span>

#include "common/data/format.h"

namespace ringmaster::data {

// The digit, 0 to 9, that stands in the image: its label.
[[nodiscard]] uint32_t SampleDigit(uint64_t seed, Split split, uint64_t sample);

// Fills `pixels` (28 * 28): a function of (seed, split, sample).
void DrawSampleDigit(uint64_t seed, Split split, uint64_t sample, std::span<uint8_t> pixels);

}  // namespace ringmaster::data
