// Describe: a memory plan as text.
#include <algorithm>
#include <functional>
#include <unordered_set>
#include <utility>

#include "common/amount.h"
#include "common/graph/memory_plan.h"

namespace ringmaster::graph {
namespace {

bool LiveAt(const Placement& placement, NodeId node) {
  return placement.bytes > 0 && placement.first <= node && node <= placement.last;
}

// Calls visit(number) for each value that is live while the node runs and shares its
// bytes with no newer one.
template <typename Visit>
void ForEachLive(const MemoryPlan& plan, NodeId node, const Visit& visit) {
  std::unordered_set<size_t> offsets;
  for (size_t i = plan.values.size(); i-- > 0;) {
    if (LiveAt(plan.values[i], node) && offsets.insert(plan.values[i].offset).second) visit(i);
  }
}

// Of what lies there then.
size_t LiveBytes(const MemoryPlan& plan, NodeId node) {
  size_t bytes = 0;
  ForEachLive(plan, node, [&](size_t i) { bytes += plan.values[i].bytes; });
  for (const Placement& workspace : plan.workspaces) {
    if (LiveAt(workspace, node)) bytes += workspace.bytes;
  }
  return bytes;
}

std::vector<PeakBuffer> LiveBuffers(const Program& program, const MemoryPlan& plan, NodeId node) {
  std::vector<PeakBuffer> buffers;
  ForEachLive(plan, node, [&](size_t i) {
    const Value& value = program.graph.value(static_cast<ValueId>(i));
    const bool fed = value.producer == kFed;
    buffers.push_back({value.name, fed ? "fed" : program.graph.node(value.producer).op(),
                       value.shape, value.dtype, plan.values[i].bytes});
  });
  for (size_t n = 0; n < plan.workspaces.size(); ++n) {
    if (!LiveAt(plan.workspaces[n], node)) continue;
    buffers.push_back({.name = program.graph.nodes()[n].name,
                       .op = "workspace",
                       .bytes = plan.workspaces[n].bytes});
  }
  std::ranges::stable_sort(buffers, std::greater(), &PeakBuffer::bytes);
  return buffers;
}

}  // namespace

Peak PeakOf(const Program& program, const MemoryPlan& plan) {
  size_t most = 0;
  NodeId peak = kFed;
  for (NodeId node = 0; node < static_cast<NodeId>(program.graph.nodes().size()); ++node) {
    const size_t bytes = LiveBytes(plan, node);
    if (bytes > most) most = bytes, peak = node;
  }
  if (peak == kFed) return {"nothing", {}};
  return {program.graph.node(peak).name, LiveBuffers(program, plan, peak)};
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
