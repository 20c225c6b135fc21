// What CIFAR-10's and CIFAR-100's binary formats share: files of records, each some label bytes and
// 3,072 pixel bytes: 1,024 red, 1,024 green, 1,024 blue, row by row (Krizhevsky, the data sets'
// page). Thread-safe (constants and free functions).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/data/format.h"

namespace ringmaster::data {

inline constexpr uint32_t kCifarHeight = 32, kCifarWidth = 32, kCifarChannels = 3;
inline constexpr size_t kCifarPixels = size_t{kCifarHeight} * kCifarWidth * kCifarChannels;

// Of a file whose records begin with `label_bytes`, the last of which is the label.
[[nodiscard]] StatusOr<FileLayout> CifarLayout(const std::string& format, size_t label_bytes,
                                               const ContentStart& start);

// Planes of an image to interleaved H,W,C pixels.
void PlanesToInterleaved(std::span<const uint8_t> planes, uint32_t channels,
                         std::span<uint8_t> pixels);

}  // namespace ringmaster::data
