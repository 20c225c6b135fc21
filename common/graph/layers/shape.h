// Layers that only move elements: concat, flatten, crop, zero_pad, split. What would change nothing
// is the input itself. Values; thread-safe.
#pragma once

#include <vector>

#include "common/graph/layers/layer.h"

namespace ringmaster::graph::layers {

// Side by side.
struct Concat {
  int64_t axis = -1;  // from behind when negative; never the samples'

  static constexpr const char* kName = "concat";
  static constexpr const char* kHelp = "inputs side by side along an axis";
  static constexpr auto Fields() {
    return std::tuple(Field{"axis", &Concat::axis, "along which; -1: the last", Between(-7, 7)});
  }
  ValueId Build(GraphBuilder& builder, const std::string& name, std::vector<ValueId> inputs) const;
};

// (N, all the rest)
struct Flatten {
  static constexpr const char* kName = "flatten";
  static constexpr const char* kHelp = "all axes but the samples' as one";
  static constexpr auto Fields() { return std::tuple(); }
  ValueId Build(GraphBuilder& builder, const std::string& name, ValueId x) const;
};

// Of images (N,H,W,C).
struct Crop {
  std::array<int64_t, 4> crop = {};

  static constexpr const char* kName = "crop";
  static constexpr const char* kHelp = "images without their margins";
  static constexpr auto Fields() {
    return std::tuple(Field{"crop", &Crop::crop, "top, left, bottom, right", kMargin});
  }
  ValueId Build(GraphBuilder& builder, const std::string& name, ValueId x) const;
};

// Zeros round images (N,H,W,C).
struct ZeroPad {
  std::array<int64_t, 4> padding = {};

  static constexpr const char* kName = "zero_pad";
  static constexpr const char* kHelp = "zeros round images";
  static constexpr auto Fields() {
    return std::tuple(Field{"padding", &ZeroPad::padding, "top, left, bottom, right", kMargin});
  }
  ValueId Build(GraphBuilder& builder, const std::string& name, ValueId x) const;
};

// Into `parts` of equal size, or into those of `sizes`; NAME/0, NAME/1 ...
struct Split {
  int64_t parts = 0;
  std::vector<int64_t> sizes = {};
  int64_t axis = -1;  // from behind when negative; never the samples'

  static constexpr const char* kName = "split";
  static constexpr const char* kHelp = "parts along an axis: NAME/0, NAME/1 ...";
  static constexpr auto Fields() {
    return std::tuple(Field{"parts", &Split::parts, "of equal size", Between(0, 1024)},
                      Field{"sizes", &Split::sizes, "instead: the size of each", kCount},
                      Field{"axis", &Split::axis, "that is cut; -1: the last", Between(-7, 7)});
  }
  std::vector<ValueId> Build(GraphBuilder& builder, const std::string& name, ValueId x) const;
};

}  // namespace ringmaster::graph::layers
