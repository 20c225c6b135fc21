// What goes into a program's run and when its gradients come out, on any backend. Thread-safe (free
// functions).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/graph/program.h"
#include "common/status.h"
#include "worker/backend/backend.h"

namespace ringmaster {

[[nodiscard]] size_t ElementsOf(const graph::Program& program, graph::ValueId value);

// The canonical number of the parameter that is fed as `value`, or nothing.
[[nodiscard]] std::optional<uint32_t> ParameterOf(const graph::Program& program,
                                                  graph::ValueId value);

// Of the logits that meet the program's labels; 0 where none do.
[[nodiscard]] int64_t ClassesOf(const graph::Program& program);

// INVALID_ARGUMENT when sizes are not those of the program, with stored pixels where it was bound
// with an augmenter and images where it was not, or a label is not in [0, classes).
[[nodiscard]] Status CheckShard(const graph::Program& program, const graph::Augmenter* augmenter,
                                int64_t classes, const ShardInput& input);

// For each place in gradient_order the node after which the gradients up to and with that one are
// complete; it never decreases.
[[nodiscard]] std::vector<graph::NodeId> GradientNodes(const graph::Program& program);

}  // namespace ringmaster
