// The CIFAR-10 binary format: records of one label byte (0 to 9) and an image
// (common/data/cifar_records.h). Training files are data_batch_*.bin, the test file is
// test_batch.bin. Thread-safe (constants and free functions).
#pragma once

#include "common/data/cifar_records.h"

namespace ringmaster::data {

inline constexpr uint32_t kCifar10Classes = 10;
inline constexpr size_t kCifar10RecordBytes = 1 + kCifarPixels;

[[nodiscard]] const Format& Cifar10();

}  // namespace ringmaster::data
