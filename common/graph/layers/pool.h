// max_pool and average_pool of windows, and squeeze_excite, which weighs channels by their means.
// Padding is neither the maximum nor counted. Values; thread-safe.
#pragma once

#include <optional>

#include "common/graph/layers/layer.h"

namespace ringmaster::graph::layers {

struct MaxPool {
  Pair window = 2;
  std::optional<Pair> stride = {};  // default: the window
  Padding padding = kValid;

  static constexpr const char* kName = "max_pool";
  static constexpr const char* kHelp = "maximum of each window";
  static constexpr auto Fields() {
    return std::tuple(Field{"window", &MaxPool::window, "height and width", kLength},
                      Field{"stride", &MaxPool::stride, "likewise; default: the window", kLength},
                      Field{"padding", &MaxPool::padding, "zeros round the images", kMargin});
  }
  ValueId Build(GraphBuilder& builder, const std::string& name, ValueId x) const;
};

struct AveragePool {
  Pair window = 2;
  std::optional<Pair> stride = {};
  Padding padding = kValid;

  static constexpr const char* kName = "average_pool";
  static constexpr const char* kHelp = "mean of each window";
  static constexpr auto Fields() {
    return std::tuple(
        Field{"window", &AveragePool::window, "height and width", kLength},
        Field{"stride", &AveragePool::stride, "likewise; default: the window", kLength},
        Field{"padding", &AveragePool::padding, "zeros round the images", kMargin});
  }
  ValueId Build(GraphBuilder& builder, const std::string& name, ValueId x) const;
};

// Hu, Shen and Sun, "Squeeze-and-excitation networks", 2018: x times sigmoid(expand(reduce(mean))),
// 1x1 convolutions NAME/reduce, to `filters`, and NAME/expand, back.
struct SqueezeExcite {
  int64_t filters = 0;
  Activation activation = "swish";
  Initial kernel_init = kGlorotUniform;

  static constexpr const char* kName = "squeeze_excite";
  static constexpr const char* kHelp = "channels weighed by a small network of their means";
  static constexpr auto Fields() {
    return std::tuple(
        Field{"filters", &SqueezeExcite::filters, "channels in between", kCount},
        Field{"activation", &SqueezeExcite::activation, "an elementwise op in between"},
        Field{"kernel_init", &SqueezeExcite::kernel_init, "how both kernels start"});
  }
  ValueId Build(GraphBuilder& builder, const std::string& name, ValueId x) const;
};

}  // namespace ringmaster::graph::layers
