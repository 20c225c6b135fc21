// Pools over the positions of images: the maximum or the mean of a window, and of the whole image,
// with their gradients. Padding is never the maximum; the first maximum of a window, row by row,
// takes the whole gradient. Nor is it counted in a mean: at an edge fewer elements are divided by
// their own number.
#pragma once

#include <array>
#include <tuple>

#include "common/graph/ops/op.h"

namespace ringmaster::graph {

// What a pool takes the maximum or the mean of.
struct PoolAttributes {
  std::array<int64_t, 2> window = {2, 2};      // height, width
  std::array<int64_t, 2> strides = {2, 2};     // likewise
  std::array<int64_t, 4> pads = {0, 0, 0, 0};  // top, left, bottom, right

  static constexpr auto Fields() {
    return std::tuple(Field{"window", &PoolAttributes::window, "height, width"},
                      Field{"strides", &PoolAttributes::strides, "height, width"},
                      Field{"pads", &PoolAttributes::pads, "top, left, bottom, right"});
  }
};

// x(N,H,W,C) -> y
struct MaxPool : PoolAttributes {
  static constexpr OpTraits kTraits = {.name = "max_pool", .keras = "MaxPooling2D"};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// x y dy -> dx
struct MaxPoolGradient : PoolAttributes {
  static constexpr OpTraits kTraits = {.name = "max_pool_gradient", .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

// x(N,H,W,C) -> y(N,C), or (N,1,1,C) where dimensions are kept; its gradient is a max_pool's
struct GlobalMaxPool {
  bool keep_dims = false;
  static constexpr auto Fields() {
    return std::tuple(Field{"keep_dims", &GlobalMaxPool::keep_dims, "height and width stay, as 1"});
  }
  static constexpr OpTraits kTraits = {.name = "global_max_pool", .keras = "GlobalMaxPooling2D"};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// x(N,H,W,C) -> y
struct AveragePool : PoolAttributes {
  static constexpr OpTraits kTraits = {.name = "average_pool", .keras = "AveragePooling2D"};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// dy -> dx of the wanted shape
struct AveragePoolGradient : PoolAttributes {
  static constexpr OpTraits kTraits = {.name = "average_pool_gradient", .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

// x(N,H,W,C) -> y(N,C), or (N,1,1,C) where dimensions are kept
struct GlobalAveragePool {
  bool keep_dims = false;
  static constexpr auto Fields() {
    return std::tuple(
        Field{"keep_dims", &GlobalAveragePool::keep_dims, "height and width stay, as 1"});
  }
  static constexpr OpTraits kTraits = {.name = "global_average_pool",
                                       .keras = "GlobalAveragePooling2D"};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// dy of either shape -> dx of the wanted shape
struct GlobalAveragePoolGradient {
  static constexpr OpTraits kTraits = {.name = "global_average_pool_gradient", .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

}  // namespace ringmaster::graph
