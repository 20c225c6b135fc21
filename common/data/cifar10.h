// The CIFAR-10 binary format: files of records, each one label byte (0 to 9) and 3,072 pixel bytes:
// 1,024 red, 1,024 green, 1,024 blue, row by row (Krizhevsky, the data set's page). Training files
// are data_batch_*.bin, the test file is test_batch.bin. Thread-safe (constants and free
// functions).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ringmaster::data {

inline constexpr uint32_t kCifarHeight = 32, kCifarWidth = 32, kCifarChannels = 3;
inline constexpr uint32_t kCifar10Classes = 10;
inline constexpr size_t kCifarPixels = size_t{kCifarHeight} * kCifarWidth * kCifarChannels;
inline constexpr size_t kCifar10RecordBytes = 1 + kCifarPixels;

enum class Split : uint8_t { kTrain, kTest };
// True when a file of this name belongs to the split.
[[nodiscard]] bool IsCifar10File(const std::string& name, Split split);

// Planes of a record to interleaved H,W,C pixels.
void PlanesToInterleaved(std::span<const uint8_t> planes, std::span<uint8_t> pixels);

}  // namespace ringmaster::data
