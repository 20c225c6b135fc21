// batch_norm, group_norm and layer_norm: NAME/gamma of ones, NAME/beta of zeros, a number a channel
// each; one node. Values; thread-safe.
#pragma once

#include "common/graph/layers/layer.h"

namespace ringmaster::graph::layers {

// Also NAME/moving_mean and NAME/moving_variance, which are no parameters.
struct BatchNorm {
  double momentum = 0.99, epsilon = 1e-3;
  bool scale = true, center = true;

  static constexpr const char* kName = "batch_norm";
  static constexpr const char* kRoles[] = {"gamma", "beta"};
  static constexpr const char* kHelp =
      "normalization over samples and places, by moving statistics when it does not train";
  static constexpr auto Fields() {
    return std::tuple(
        Field{"momentum", &BatchNorm::momentum, "what statistics keep each step", kRate},
        Field{"epsilon", &BatchNorm::epsilon, "added to the variance", Above(0)},
        Field{"scale", &BatchNorm::scale, "there is a gamma"},
        Field{"center", &BatchNorm::center, "there is a beta"});
  }
  ValueId Build(GraphBuilder& builder, const std::string& name, ValueId x) const;
};

struct GroupNorm {
  int64_t groups = 32;
  double epsilon = 1e-3;
  bool scale = true, center = true;

  static constexpr const char* kName = "group_norm";
  static constexpr const char* kRoles[] = {"gamma", "beta"};
  static constexpr const char* kHelp = "normalization of groups of channels, sample by sample";
  static constexpr auto Fields() {
    return std::tuple(Field{"groups", &GroupNorm::groups, "of channels, which they divide", kCount},
                      Field{"epsilon", &GroupNorm::epsilon, "added to the variance", Above(0)},
                      Field{"scale", &GroupNorm::scale, "there is a gamma"},
                      Field{"center", &GroupNorm::center, "there is a beta"});
  }
  ValueId Build(GraphBuilder& builder, const std::string& name, ValueId x) const;
};

// Over the last axis.
struct LayerNorm {
  double epsilon = 1e-3;
  bool scale = true, center = true;

  static constexpr const char* kName = "layer_norm";
  static constexpr const char* kRoles[] = {"gamma", "beta"};
  static constexpr const char* kHelp = "normalization over the last axis";
  static constexpr auto Fields() {
    return std::tuple(Field{"epsilon", &LayerNorm::epsilon, "added to the variance", Above(0)},
                      Field{"scale", &LayerNorm::scale, "there is a gamma"},
                      Field{"center", &LayerNorm::center, "there is a beta"});
  }
  ValueId Build(GraphBuilder& builder, const std::string& name, ValueId x) const;
};

}  // namespace ringmaster::graph::layers
