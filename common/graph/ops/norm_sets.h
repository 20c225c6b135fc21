// Which elements of x group_norm and layer_norm normalize together: for each sample and group the
// group's channels at all positions. Values; thread-safe.
#pragma once

#include "common/graph/graph.h"

namespace ringmaster::graph {

// x as (samples, positions, groups, channels of a group). To layer_norm each row is a sample with
// one position and one group.
struct NormSets {
  int64_t samples, positions, groups, channels;

  [[nodiscard]] int64_t all_channels() const { return groups * channels; }
  [[nodiscard]] int64_t sets() const { return samples * groups; }
  // Elements of a set.
  [[nodiscard]] int64_t elements() const { return positions * channels; }
  // Offset of the first channel of a set at a position; `set` counts groups, then samples.
  [[nodiscard]] int64_t At(int64_t set, int64_t position) const {
    return ((set / groups * positions + position) * groups + set % groups) * channels;
  }
};

// Of a group_norm, a layer_norm or their gradients, on x of that shape.
[[nodiscard]] inline NormSets NormSetsOf(const Node& node, const Shape& x) {
  if (const auto* group_norm = node.attributes<GroupNormAttributes>()) {
    const int64_t sample = Elements(x) / x[0];
    return {x[0], sample / x.back(), group_norm->groups, x.back() / group_norm->groups};
  }
  return {Elements(x) / x.back(), 1, 1, x.back()};
}

}  // namespace ringmaster::graph
