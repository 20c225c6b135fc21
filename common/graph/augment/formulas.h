// What augmentation makes of one value of an image, for every backend: correctly rounded + - * /
// and square root, float64 between the first and the last rounding. For host code and GPU kernels;
// nothing is included that a compiler of kernels cannot read. Thread-safe (free functions).
#pragma once

#include <cstdint>

#include "common/numeric/arithmetic.h"
#include "common/numeric/host_device.h"

namespace ringmaster::graph {

// How an output of bilinear resizing is made along one side.
struct Tap {
  uint32_t low, high;  // the pixels on both sides
  float weight;        // of `high`
};
RING_HOST_DEVICE inline float Interpolated(float low, float high, float weight) {
  return low + (high - low) * weight;
}

// What an operation does, from what its stream gave: an integer in [0, 2 padding], or u in [0, 1)
// with 24 bits.
RING_HOST_DEVICE inline int64_t CropOffset(uint32_t drawn, uint32_t padding) {
  return int64_t{drawn} - int64_t{padding};
}
RING_HOST_DEVICE inline double BrightnessDelta(float u, double max_delta) {
  return (2 * double{u} - 1) * max_delta;
}
RING_HOST_DEVICE inline double ContrastFactor(float u, double lower, double upper) {
  return lower + (upper - lower) * double{u};
}

RING_HOST_DEVICE inline float Brightened(float x, double delta) {
  return static_cast<float>(double{x} + delta);
}

// `mean`: of x's channel.
RING_HOST_DEVICE inline float Contrasted(float x, double factor, double mean) {
  return static_cast<float>((double{x} - mean) * factor + mean);
}

// Of all n elements.
RING_HOST_DEVICE inline double SquaredDeviation(float x, double mean) {
  const double deviation = double{x} - mean;
  return deviation * deviation;
}
RING_HOST_DEVICE inline double StandardDivisor(double variance, double n) {
  const double deviation = SquareRoot(variance), least = 1.0 / SquareRoot(n);
  return deviation < least ? least : deviation;
}
RING_HOST_DEVICE inline float Standardized(float x, double mean, double divisor) {
  return static_cast<float>((double{x} - mean) / divisor);
}

RING_HOST_DEVICE inline float OfUnitRange(float x) { return x / 255.0F; }

}  // namespace ringmaster::graph
