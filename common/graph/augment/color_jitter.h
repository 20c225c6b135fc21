// What color_jitter does to one image: torchvision's ColorJitter, whose distribution it has, on
// float32 values of 0 to 255 that are clipped to that range after each of the four, where Pillow
// also rounds to whole numbers. Grey is ITU-R 601's, by Pillow's weights of 65,536ths, not rounded.
// + - * / in float64, each value rounded to float32 once. Thread-safe (free functions).
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "common/graph/augment/resize.h"
#include "common/numeric/philox.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::graph {

enum class Jitter : uint8_t { kBrightness, kContrast, kSaturation, kHue };

// What was drawn for one image. A factor of 1 and a shift of 0 change nothing.
struct JitterDraw {
  double brightness = 1, contrast = 1, saturation = 1;
  double hue = 0;  // turns of the colour circle
  std::array<Jitter, 4> order;
};
// Elements 0 to 3 of the stream are the factors, 4 to 6 the order.
[[nodiscard]] JitterDraw DrawJitter(const v1::ColorJitter& jitter, const PhiloxStream& stream);

// Of three channels, or of one, which has neither saturation nor hue.
void ApplyJitter(const JitterDraw& draw, const ImageShape& shape, std::span<float> image);

}  // namespace ringmaster::graph
