// Describe: a memory plan as text.
#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "common/amount.h"
#include "common/graph/memory_plan.h"

namespace ringmaster::graph {
namespace {

bool LiveAt(const Placement& placement, NodeId node) {
  return placement.bytes > 0 && placement.first <= node && node <= placement.last;
}

// What is live while the node runs.
std::vector<PeakBuffer> LiveBuffers(const Program& program, const MemoryPlan& plan, NodeId node) {
  std::vector<PeakBuffer> buffers;
  std::vector<size_t> offsets;
  for (size_t i = plan.values.size(); i-- > 0;) {
    const Placement& placement = plan.values[i];
    if (!LiveAt(placement, node) || std::ranges::count(offsets, placement.offset) > 0) continue;
    offsets.push_back(placement.offset);
    const Value& value = program.graph.value(static_cast<ValueId>(i));
    const bool fed = value.producer == kFed;
    buffers.push_back({value.name, fed ? "fed" : program.graph.node(value.producer).op(),
                       value.shape, value.dtype, placement.bytes});
  }
  for (size_t n = 0; n < plan.workspaces.size(); ++n) {
    if (!LiveAt(plan.workspaces[n], node)) continue;
    buffers.push_back({.name = program.graph.nodes()[n].name,
                       .op = "workspace",
                       .bytes = plan.workspaces[n].bytes});
  }
  std::ranges::stable_sort(buffers, std::greater(), &PeakBuffer::bytes);
  return buffers;
}

size_t Total(const std::vector<PeakBuffer>& buffers) {
  return std::accumulate(buffers.begin(), buffers.end(), size_t{0},
                         [](size_t sum, const PeakBuffer& buffer) { return sum + buffer.bytes; });
}

}  // namespace

Peak PeakOf(const Program& program, const MemoryPlan& plan) {
  Peak peak = {"nothing", {}};
  for (NodeId node = 0; node < static_cast<NodeId>(program.graph.nodes().size()); ++node) {
    std::vector<PeakBuffer> live = LiveBuffers(program, plan, node);
    if (Total(live) > Total(peak.buffers)) peak = {program.graph.node(node).name, std::move(live)};
  }
  return peak;
}

std::string Describe(const Program& program, const MemoryPlan& plan) {
  constexpr size_t kLines = 12;
  const Peak peak = PeakOf(program, plan);
  std::string text = fmt::format("Arena {} for {} samples; most is live while {} runs:\n",
                                 FormatBytes(plan.arena_bytes), program.samples, peak.node);
  for (size_t i = 0; i < std::min(peak.buffers.size(), kLines); ++i) {
    const PeakBuffer& buffer = peak.buffers[i];
    const bool workspace = buffer.op == "workspace";
    const char* role = buffer.op == "fed" ? "" : workspace ? " workspace" : " output";
    text += fmt::format(
        "  {}{}{} {}\n", buffer.name, role,
        workspace ? "" : fmt::format(" {} {}", ToString(buffer.shape), Name(buffer.dtype)),
        FormatBytes(buffer.bytes));
  }
  if (peak.buffers.size() > kLines) {
    text += fmt::format("  and {} smaller values\n", peak.buffers.size() - kLines);
  }
  return text;
}

}  // namespace ringmaster::graph
