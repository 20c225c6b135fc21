// Draws one sample image: ten classes told apart by local structure and by the axis of colour along
// which foreground and background differ. Place, phase, scale, polarity, contrast and noise are
// random, and every class is its own mirror image, so that the mean of a pixel says nothing about
// the class. Thread-safe (free function).
#pragma once

#include <cstdint>
#include <span>

#include "common/data/cifar10.h"

namespace ringmaster::data {

// Fills `record` (kCifar10RecordBytes: label, then planes): a function of (seed, split, sample).
// + - * /, floor and square root only, so the same bytes on every machine.
void DrawSample(uint64_t seed, Split split, uint64_t sample, std::span<uint8_t> record);

}  // namespace ringmaster::data
