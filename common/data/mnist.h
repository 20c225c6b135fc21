// The MNIST format: IDX files, images and labels apart, each file plain or gzipped. Integers are
// big-endian; an images file is magic 2051, count, rows, columns and one byte a pixel, a labels
// file magic 2049, count and one byte a label (LeCun, the data set's page). Any rows and columns up
// to 1,024, since others publish data in this format. Thread-safe (constants and free functions).
#pragma once

#include "common/data/format.h"

namespace ringmaster::data {

inline constexpr uint32_t kMnistClasses = 10;
inline constexpr uint32_t kMnistHeight = 28, kMnistWidth = 28;
inline constexpr size_t kIdxImagesHeader = 16, kIdxLabelsHeader = 8;

[[nodiscard]] const Format& Mnist();

}  // namespace ringmaster::data
