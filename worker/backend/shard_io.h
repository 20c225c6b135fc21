// What goes into a program's run and when its gradients come out, on any backend. Thread-safe (free
// functions).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "common/graph/program.h"
#include "common/status.h"
#include "worker/backend/backend.h"

namespace ringmaster {

[[nodiscard]] size_t ElementsOf(const graph::Program& program, graph::ValueId value);

// The number of the parameter that is fed as `value`, or nothing: those that are frozen count on
// behind the others.
[[nodiscard]] std::optional<uint32_t> ParameterOf(const graph::Program& program,
                                                  graph::ValueId value);

// The column that stored pixels become: the first one of images, (N,H,W,C) float32; nullptr when
// there is none.
[[nodiscard]] const graph::Column* PixelColumn(const graph::Program& program);

// How many rows a shard may have: those of the program, or fewer, at least one (Backend::pads).
enum class ShardRows : uint8_t { kAll, kUpToAll };

// INVALID_ARGUMENT names the column whose size is not that of the rows, or whose element is out of
// its range. With an augmenter stored pixels are expected in place of the pixel column.
[[nodiscard]] Status CheckShard(const graph::Program& program, const graph::Augmenter* augmenter,
                                const ShardInput& input, ShardRows allowed = ShardRows::kAll);

// For each place in gradient_order the node after which the gradients up to and with that one are
// complete; it never decreases.
[[nodiscard]] std::vector<graph::NodeId> GradientNodes(const graph::Program& program);

// What a run has made beside its gradients: scalars and rows, and in training the statistics of the
// batch. `at`: where the elements of such a value are, in the host's memory.
void CollectOutput(const graph::Program& program,
                   const std::function<const float*(graph::ValueId)>& at, ShardOutput* output);

}  // namespace ringmaster
