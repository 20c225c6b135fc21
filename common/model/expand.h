// A model file as layers: blocks, repetitions, conditions, expressions and defaults are written
// out. What it says is docs/layers.md. The number of layers and the work are bounded, whatever the
// file says. It knows no data: `classes` and the like stay in the layers as facts. Pure;
// thread-safe (free function).
#pragma once

#include <vector>

#include "common/status.h"
#include "common/yaml/yaml_tree.h"
#include "ringmaster/v1/graph.pb.h"

namespace ringmaster::model {

inline constexpr size_t kMaxLayers = 16'384;
inline constexpr int kMaxNesting = 8;  // of blocks
inline constexpr int64_t kMaxRepeat = 1'000;

// `file` has layers, blocks, defaults and options; `given` are options for it. INVALID_ARGUMENT
// says where it stands, in a block also where that is used: `net.yaml:8:9: unit (in bottleneck,
// used at net.yaml:31:5 as stage1/block1): option filters is missing`.
[[nodiscard]] StatusOr<std::vector<v1::Layer>> Expand(const YamlNode& file,
                                                      const std::vector<YamlNode::Member>& given);

}  // namespace ringmaster::model
