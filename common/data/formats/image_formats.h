// The formats of images with a label each: CIFAR-10, CIFAR-100 (cifar.cc) and MNIST (mnist.cc).
// Thread-safe (constants and free functions).
//
// CIFAR's binary formats are files of records, each some label bytes and 3,072 pixel bytes: 1,024
// red, 1,024 green, 1,024 blue, row by row (Krizhevsky, the data sets' page). CIFAR-10 has one
// label byte, 0 to 9; CIFAR-100 a coarse one (of 20 superclasses, not used here) and a fine one, 0
// to 99.
//
// MNIST's files are IDX, images and labels apart, each file plain or gzipped. Integers are
// big-endian; an images file is magic 2051, count, rows, columns and one byte a pixel, a labels
// file magic 2049, count and one byte a label (LeCun, the data set's page). Any rows and columns up
// to 1,024, since others publish data in this format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ringmaster::data {

inline constexpr uint32_t kCifarHeight = 32, kCifarWidth = 32, kCifarChannels = 3;
inline constexpr size_t kCifarPixels = size_t{kCifarHeight} * kCifarWidth * kCifarChannels;
inline constexpr uint32_t kCifar10Classes = 10, kCifar100Classes = 100;
inline constexpr size_t kCifar10RecordBytes = 1 + kCifarPixels;
inline constexpr size_t kCifar100RecordBytes = 2 + kCifarPixels;

// Planes of an image to interleaved H,W,C pixels.
void PlanesToInterleaved(std::span<const uint8_t> planes, uint32_t channels,
                         std::span<uint8_t> pixels);

inline constexpr uint32_t kMnistClasses = 10;
inline constexpr uint32_t kMnistHeight = 28, kMnistWidth = 28;
inline constexpr size_t kIdxImagesHeader = 16, kIdxLabelsHeader = 8;

}  // namespace ringmaster::data
