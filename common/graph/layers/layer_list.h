// The only list of layer kinds that are more than an op. Constants; thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <variant>

#include "common/graph/layers/convolution.h"
#include "common/graph/layers/dense.h"
#include "common/graph/layers/normalization.h"
#include "common/graph/layers/pool.h"
#include "common/graph/layers/shape.h"

namespace ringmaster::graph::layers {

// By name.
using Layers = std::variant<AveragePool, BatchNorm, Concat, Conv2d, Crop, Dense, DepthwiseConv2d,
                            Dropout, Flatten, GroupNorm, LayerNorm, MaxPool, SeparableConv2d, Split,
                            SqueezeExcite, ZeroPad>;

// One for each, in their order: make(std::type_identity<Layer>()).
template <typename Make>
[[nodiscard]] auto ForEachLayer(const Make& make) {
  return [&]<size_t... i>(std::index_sequence<i...>) {
    return std::array{make(std::type_identity<std::variant_alternative_t<i, Layers>>())...};
  }
  (std::make_index_sequence<std::variant_size_v<Layers>>());
}

}  // namespace ringmaster::graph::layers
