#include "worker/backend/core_layout.h"

#include <string>
#include <utility>

#include "common/amount.h"
#include "worker/backend/failure.h"

namespace ringmaster {

CoreLayout LayOut(const graph::Program& program, size_t alignment, std::vector<size_t> workspace) {
  CoreLayout layout;
  layout.plan =
      graph::PlanMemory(program, {.alignment = alignment, .workspace = std::move(workspace)});
  layout.bytes = AlignUp(layout.plan.arena_bytes, alignment);
  for (const graph::Parameter& parameter : program.parameters) {
    layout.gradients.push_back(layout.bytes);
    if (parameter.gradient == graph::kNoValue) continue;
    const auto elements =
        static_cast<size_t>(graph::Elements(program.graph.value(parameter.gradient).shape));
    layout.bytes += AlignUp(sizeof(float) * elements, alignment);
  }
  return layout;
}

std::vector<void*> AddressesOf(const graph::Program& program, const CoreLayout& layout,
                               std::byte* memory) {
  std::vector<void*> addresses;
  for (const graph::Placement& placement : layout.plan.values) {
    addresses.push_back(placement.bytes > 0 ? memory + placement.offset : nullptr);
  }
  for (size_t p = 0; p < program.parameters.size(); ++p) {
    const graph::ValueId gradient = program.parameters[p].gradient;
    if (gradient == graph::kNoValue) continue;
    addresses[static_cast<size_t>(gradient)] = memory + layout.gradients[p];
  }
  return addresses;
}

Status CheckFits(const graph::Program& program, const CoreLayout& layout, size_t shared_bytes,
                 size_t limit) {
  const size_t used = layout.bytes + shared_bytes;
  if (used <= limit) return absl::OkStatus();
  const auto part = [](const char* what, size_t bytes) {
    return bytes == 0 ? "" : fmt::format(", {} {}", what, FormatBytes(bytes));
  };
  return OutOfMemory(
      "Used {} of {} memory per core (exceeded by {}): arena {}, gradients {}{}{}\n{}",
      FormatBytes(used), FormatBytes(limit), FormatBytes(used - limit),
      FormatBytes(layout.plan.arena_bytes),
      FormatBytes(layout.bytes - layout.plan.arena_bytes - layout.input_bytes),
      part("pixels", layout.input_bytes), part("weights, state and input", shared_bytes),
      graph::Describe(program, layout.plan));
}

}  // namespace ringmaster
