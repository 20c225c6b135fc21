// Where a program's bytes lie in the memory of one core, on any backend: the planned arena and,
// where gradients are not in it, one buffer for each of them, all at multiples of one alignment. A
// value, a function of its arguments; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/graph/memory_plan.h"
#include "common/graph/program.h"
#include "common/status.h"

namespace ringmaster {

struct CoreLayout {
  graph::MemoryPlan plan;
  std::vector<size_t> gradients;  // offsets by canonical parameter number; none in the arena
  size_t bytes = 0;
  size_t input_bytes = 0;    // of them: pixels, and what making images of them needs
  size_t element_bytes = 0;  // what its elements alone take, where memory has tiles; else 0
  size_t host_bytes = 0;     // beside it, of the host: Core::host_bytes
};

[[nodiscard]] constexpr size_t AlignUp(size_t bytes, size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// `workspace`: bytes that node i's kernel needs while it runs. `in_pieces`, of a backend that hands
// a gradient over before the next node runs: then they lie in the arena until they are taken, but
// for these, which their kernels hand over in pieces and which lie nowhere. `elsewhere`: values for
// which the caller has memory of its own.
[[nodiscard]] CoreLayout LayOut(
    const graph::Program& program, size_t alignment, std::vector<size_t> workspace,
    const std::optional<std::vector<graph::ValueId>>& in_pieces = std::nullopt,
    std::vector<graph::ValueId> elsewhere = {});

// By ValueId, in memory that begins at `memory`; null for what has no bytes there: parameters,
// moving statistics, gradients in pieces, and what lies elsewhere.
[[nodiscard]] std::vector<void*> AddressesOf(const graph::Program& program,
                                             const CoreLayout& layout, std::byte* memory);

// OK where the layout, and beside it what CoreOptions::shared_bytes says, fit `limit` bytes; else
// RESOURCE_EXHAUSTED with the plan as text.
[[nodiscard]] Status CheckFits(const graph::Program& program, const CoreLayout& layout,
                               size_t shared_bytes, size_t limit);

}  // namespace ringmaster
