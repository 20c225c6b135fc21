#include "worker/backend/core_layout.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/amount.h"
#include "worker/backend/failure.h"
#include "worker/backend/shard_io.h"

namespace ringmaster {

namespace {

// When each gradient that lies somewhere is taken.
std::vector<std::pair<graph::ValueId, graph::NodeId>> TakenOf(
    const graph::Program& program, const std::vector<graph::ValueId>& in_pieces) {
  const std::vector<graph::NodeId> nodes = GradientNodes(program);
  std::vector<std::pair<graph::ValueId, graph::NodeId>> taken;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const graph::ValueId gradient = program.parameters[program.gradient_order[i]].gradient;
    if (std::ranges::find(in_pieces, gradient) != in_pieces.end()) continue;
    taken.emplace_back(gradient, nodes[i]);
  }
  return taken;
}

}  // namespace

CoreLayout LayOut(const graph::Program& program, size_t alignment, std::vector<size_t> workspace,
                  const std::optional<std::vector<graph::ValueId>>& in_pieces,
                  std::vector<graph::ValueId> elsewhere) {
  CoreLayout layout;
  graph::MemoryOptions options = {
      .alignment = alignment, .workspace = std::move(workspace), .elsewhere = std::move(elsewhere)};
  if (in_pieces) options.taken = TakenOf(program, *in_pieces);
  layout.plan = graph::PlanMemory(program, options);
  layout.bytes = AlignUp(layout.plan.arena_bytes, alignment);
  if (in_pieces) return layout;
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
  for (size_t p = 0; p < layout.gradients.size(); ++p) {
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
      "Used {} of {} memory per core (exceeded by {}): arena {}{}{}{}\n{}", FormatBytes(used),
      FormatBytes(limit), FormatBytes(used - limit), FormatBytes(layout.plan.arena_bytes),
      part("gradients", layout.gradients.empty()
                            ? 0
                            : layout.bytes - layout.plan.arena_bytes - layout.input_bytes),
      part("pixels", layout.input_bytes), part("weights, state and input", shared_bytes),
      graph::Describe(program, layout.plan));
}

}  // namespace ringmaster
