// Draws one sample image in colour: classes told apart by local structure and by the axis of colour
// along which foreground and background differ. Place, phase, scale, polarity, contrast and noise
// are random, and every class is its own mirror image, so that the mean of a pixel says nothing
// about the class. Thread-safe (free function).
#pragma once

#include <cstdint>
#include <span>

#include "common/data/cifar_records.h"

namespace ringmaster::data {

struct SampleKey {
  uint64_t seed;
  Split split;
  uint64_t sample;
  uint32_t classes;  // 10: a pattern with an axis of its own; 100: each pattern with each axis
};

// Fills `planes` (kCifarPixels) and returns the label: a function of the key.
// + - * /, floor and square root only, so the same bytes on every machine.
uint32_t DrawSampleImage(const SampleKey& key, std::span<uint8_t> planes);

}  // namespace ringmaster::data
