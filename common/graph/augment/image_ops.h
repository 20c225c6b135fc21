// What the operations of an augmentation list do to one image, once their random numbers are
// drawn: float32 values of H,W,C order, changed in place. Correctly rounded + - * / and square
// root, float64 between the first and the last rounding. Thread-safe (free functions).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/graph/augment/resize.h"
#include "common/image/decode.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::graph {

// Where the top left corner of the new image lies in the old one.
struct Offset {
  int64_t down = 0, right = 0;
};
// What lies outside of the old image is zero. `scratch` gets a copy of it.
void Move(const Offset& offset, const ImageShape& shape, std::vector<float>* scratch,
          std::span<float> image);

void FlipLeftRight(const ImageShape& shape, std::span<float> image);

// x + delta.
void Brighten(double delta, std::span<float> image);

// (x - mean) factor + mean, with the mean of x's channel.
void ScaleContrast(double factor, const ImageShape& shape, std::span<float> image);

// To the left about the middle of the image, as Pillow's rotate lays its bilinear samples: the
// middle of an output pixel is turned back, a place that is outside of the image has `fill`, and
// pixels beyond the edge are the edge's. -180 to 180 degrees; `scratch` gets a copy of the image.
void Rotate(double degrees, float fill, const ImageShape& shape, std::vector<float>* scratch,
            std::span<float> image);

// `values`: one, or one of each channel.
void Erase(const image::Window& window, std::span<const double> values, const ImageShape& shape,
           std::span<float> image);

// As Keras' preprocess_input; of three channels, but for tf and a list of as many as there are.
void Normalize(const v1::Normalize& normalize, std::span<float> image);

// (x - mean) / max(deviation, 1 / sqrt(n)) over all n elements.
void Standardize(std::span<float> image);

}  // namespace ringmaster::graph
