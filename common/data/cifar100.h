// The CIFAR-100 binary format: records of a coarse label byte (one of 20 superclasses, not used
// here), a fine label byte (0 to 99) and an image (common/data/cifar_records.h). The training file
// is train.bin, the test file test.bin. Thread-safe (constants and free functions).
#pragma once

#include "common/data/cifar_records.h"

namespace ringmaster::data {

inline constexpr uint32_t kCifar100Classes = 100;
inline constexpr size_t kCifar100RecordBytes = 2 + kCifarPixels;

[[nodiscard]] const Format& Cifar100();

}  // namespace ringmaster::data
