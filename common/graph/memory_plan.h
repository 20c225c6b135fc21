// Where each value of a program lives in one arena, and the exact peak. Values; thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "common/graph/program.h"

namespace ringmaster::graph {

struct MemoryOptions {
  size_t alignment = 64;
  // Extra bytes that a backend needs while node i runs (scratch of a kernel); empty = none.
  std::vector<size_t> workspace;
  // What a value takes where that is more than its elements do: tiles of a device's memory;
  // nullptr: its elements.
  size_t (*bytes_of)(const Value& value) = nullptr;
  // Gradients of parameters that are in the arena, each until somebody takes it behind a node.
  std::vector<std::pair<ValueId, NodeId>> taken;
  // Values that a backend lays elsewhere.
  std::vector<ValueId> elsewhere;
};

struct Placement {
  size_t offset = 0;
  size_t bytes = 0;  // 0: not in the arena
  NodeId first = 0;  // live from this node ...
  NodeId last = 0;   // ... through this one
};

struct MemoryPlan {
  std::vector<Placement> values;      // by ValueId
  std::vector<Placement> workspaces;  // by NodeId
  size_t arena_bytes = 0;
  size_t lower_bound = 0;  // largest sum of bytes live at one node
};

// Greedy by size, and by lifetime, each improved for some rounds by placing what ended highest
// first; the smallest arena wins and ties are broken by id, so the plan is a function of its
// arguments. Columns and seeds are in the arena, from node 0 on; parameters, their
// gradients, but for those of `taken`, moving statistics and `elsewhere` are not. A reshape lies
// where its input lies, and an op whose row of the op table says kInPlace may overwrite an input
// that dies there (the elementwise ones and their gradients, batch_norm_gradient): then the two
// placements are the same bytes. Both only where input and output take the same.
[[nodiscard]] MemoryPlan PlanMemory(const Program& program, const MemoryOptions& options);

// What lies in the arena while the node runs during which most is live: largest first. Values that
// share bytes are one buffer, called after the newest of them.
struct PeakBuffer {
  std::string name;  // the value's; a workspace's node
  std::string op;    // that made it; "fed"; "workspace"
  Shape shape;       // empty of a workspace
  DType dtype = DType::kFloat32;
  size_t bytes = 0;
};
struct Peak {
  std::string node;
  std::vector<PeakBuffer> buffers;
};
[[nodiscard]] Peak PeakOf(const Program& program, const MemoryPlan& plan);

// The plan as text: totals, then the largest buffers at the peak with shape and type.
[[nodiscard]] std::string Describe(const Program& program, const MemoryPlan& plan);

}  // namespace ringmaster::graph
