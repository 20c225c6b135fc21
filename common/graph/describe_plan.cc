// Describe: a memory plan as text.
#include <algorithm>
#include <numeric>
#include <utility>

#include "common/amount.h"
#include "common/graph/memory_plan.h"

namespace ringmaster::graph {
namespace {

bool LiveAt(const Placement& placement, NodeId node) {
  return placement.bytes > 0 && placement.first <= node && node <= placement.last;
}

// One line of the table: bytes at an offset, and what they are.
struct Entry {
  size_t offset;
  size_t bytes;
  std::string text;
};

// What is live while the node runs; values that share bytes are one entry, the newest of them.
std::vector<Entry> LiveEntries(const Program& program, const MemoryPlan& plan, NodeId node) {
  std::vector<Entry> entries;
  for (size_t i = plan.values.size(); i-- > 0;) {
    const Placement& placement = plan.values[i];
    if (!LiveAt(placement, node)) continue;
    const bool shared = std::any_of(entries.begin(), entries.end(), [&](const Entry& entry) {
      return entry.offset == placement.offset;
    });
    if (shared) continue;
    const Value& value = program.graph.value(static_cast<ValueId>(i));
    const char* role = value.producer == kFed ? "" : " output";
    entries.push_back(
        {placement.offset, placement.bytes,
         fmt::format("{}{} {} {}", value.name, role, ToString(value.shape), Name(value.dtype))});
  }
  for (size_t n = 0; n < plan.workspaces.size(); ++n) {
    if (!LiveAt(plan.workspaces[n], node)) continue;
    entries.push_back({plan.workspaces[n].offset, plan.workspaces[n].bytes,
                       program.graph.nodes()[n].name + " workspace"});
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.bytes > b.bytes; });
  return entries;
}

size_t Total(const std::vector<Entry>& entries) {
  return std::accumulate(entries.begin(), entries.end(), size_t{0},
                         [](size_t sum, const Entry& entry) { return sum + entry.bytes; });
}

}  // namespace

std::string Describe(const Program& program, const MemoryPlan& plan) {
  constexpr size_t kLines = 12;
  const auto nodes = static_cast<NodeId>(program.graph.nodes().size());
  NodeId peak = 0;
  std::vector<Entry> entries;
  for (NodeId node = 0; node < nodes; ++node) {
    std::vector<Entry> live = LiveEntries(program, plan, node);
    if (Total(live) <= Total(entries)) continue;
    entries = std::move(live);
    peak = node;
  }
  std::string text = fmt::format("Arena {} for {} samples; most is live while {} runs:\n",
                                 FormatBytes(plan.arena_bytes), program.samples,
                                 nodes == 0 ? "nothing" : program.graph.node(peak).name);
  for (size_t i = 0; i < std::min(entries.size(), kLines); ++i) {
    text += fmt::format("  {} {}\n", entries[i].text, FormatBytes(entries[i].bytes));
  }
  if (entries.size() > kLines) {
    text += fmt::format("  and {} smaller values\n", entries.size() - kLines);
  }
  return text;
}

}  // namespace ringmaster::graph
