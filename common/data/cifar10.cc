#include "common/data/cifar10.h"

#include "common/check.h"

namespace ringmaster::data {

bool IsCifar10File(const std::string& name, Split split) {
  if (split == Split::kTest) return name == "test_batch.bin";
  const std::string prefix = "data_batch_", suffix = ".bin";
  return name.size() > prefix.size() + suffix.size() && name.starts_with(prefix) &&
         name.ends_with(suffix);
}

void PlanesToInterleaved(std::span<const uint8_t> planes, std::span<uint8_t> pixels) {
  RING_CHECK(planes.size() == kCifarPixels && pixels.size() == kCifarPixels, "not a CIFAR image");
  constexpr size_t kPlane = size_t{kCifarHeight} * kCifarWidth;
  for (size_t i = 0; i < kPlane; ++i) {
    for (size_t c = 0; c < kCifarChannels; ++c) {
      pixels[i * kCifarChannels + c] = planes[c * kPlane + i];
    }
  }
}

}  // namespace ringmaster::data
