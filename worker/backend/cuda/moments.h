// Mean and spread of many numbers by channel, one batch after another. For kernels and for host
// code; values.
#pragma once

#include "common/host_device.h"

namespace ringmaster::cuda {

// Count, means and sums of squared deviations of kWidth channels, which share their count.
template <int kWidth>
struct PackMoments {
  float count = 0;
  float mean[kWidth] = {};
  float squares[kWidth] = {};

  // What part of all numbers `other_count` more will be, which are not none.
  RING_HOST_DEVICE float ShareOf(float other_count) const {
    return other_count / (count + other_count);
  }
  // Channel c of those that join (Chan, Golub and LeVeque, "Updating formulae and a pairwise
  // algorithm for computing sample variances", 1979), which does not cancel; `count` is still that
  // without them.
  RING_HOST_DEVICE void Join(int c, float share, float other_mean, float other_squares) {
    const float difference = other_mean - mean[c];
    squares[c] += other_squares + difference * difference * count * share;
    mean[c] += difference * share;
  }
};

}  // namespace ringmaster::cuda
