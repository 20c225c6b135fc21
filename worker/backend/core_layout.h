// Where a program's bytes lie in the memory of one core, on any backend: the planned arena, then
// one buffer for each parameter's gradient, all at multiples of one alignment. A value, a function
// of its arguments; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/graph/memory_plan.h"
#include "common/graph/program.h"
#include "common/status.h"

namespace ringmaster {

struct CoreLayout {
  graph::MemoryPlan plan;
  std::vector<size_t> gradients;  // offsets by canonical parameter number
  size_t bytes = 0;
  size_t input_bytes = 0;    // of them: pixels, and what making images of them needs
  size_t element_bytes = 0;  // what its elements alone take, where memory has tiles; else 0
  size_t host_bytes = 0;     // beside it, of the host: Core::host_bytes
};

[[nodiscard]] constexpr size_t AlignUp(size_t bytes, size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// `workspace`: bytes that node i's kernel needs while it runs.
[[nodiscard]] CoreLayout LayOut(const graph::Program& program, size_t alignment,
                                std::vector<size_t> workspace);

// By ValueId, in memory that begins at `memory`; null for what has no bytes there: parameters and
// moving statistics.
[[nodiscard]] std::vector<void*> AddressesOf(const graph::Program& program,
                                             const CoreLayout& layout, std::byte* memory);

// OK where the layout, and beside it what CoreOptions::shared_bytes says, fit `limit` bytes; else
// RESOURCE_EXHAUSTED with the plan as text.
[[nodiscard]] Status CheckFits(const graph::Program& program, const CoreLayout& layout,
                               size_t shared_bytes, size_t limit);

}  // namespace ringmaster
