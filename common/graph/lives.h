// When the values of a schedule are live, and which of them lie in the same bytes: what a memory
// plan places and a pass counts. Values; thread-safe (free functions).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/graph/program.h"

namespace ringmaster::graph {

// A value, as far as memory goes.
struct Room {
  size_t bytes = 0;
  bool fed = false;      // there from the first turn on
  bool outside = false;  // has memory of its own: parameters, their gradients, moving statistics
  bool result = false;   // stays to the end
  // Somebody takes it behind this turn, and nothing may overwrite it before; -1: nobody does.
  NodeId taken = -1;
};
// By ValueId.
[[nodiscard]] std::vector<Room> RoomsOf(const Program& program);

// One node at its place in a schedule.
struct Turn {
  const OpTraits* op = nullptr;
  std::span<const ValueId> inputs, outputs;
};
// In the order of the graph, which must stay as it is.
[[nodiscard]] std::vector<Turn> TurnsOf(const Graph& graph);

struct Lives {
  // One range of bytes that must not overlap another one that is live at the same time. Several
  // values share a buffer when they alias or overwrite each other.
  struct Buffer {
    size_t bytes = 0;  // a multiple of the alignment
    NodeId first = 0;  // live from this turn ...
    NodeId last = 0;   // ... through this one
  };
  static constexpr size_t kOutside = static_cast<size_t>(-1);

  std::vector<Buffer> buffers;
  std::vector<size_t> buffer_of;     // by ValueId; kOutside: none
  std::vector<NodeId> last_readers;  // by ValueId: turns; its own where nobody reads it

  // Of all buffers, by turn.
  [[nodiscard]] std::vector<size_t> LiveBytes(size_t turns) const;
};

// A value lives from the turn that makes it, or the first one, to its last reader. Output 0 lies
// where the op's row says: a fed value is never overwritten.
[[nodiscard]] Lives FindLives(std::span<const Turn> turns, std::span<const Room> rooms,
                              size_t alignment);

}  // namespace ringmaster::graph
