#include "common/graph/memory_plan.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "common/graph/ops/op_table.h"
#include "common/graph/passes/rewrite.h"

namespace ringmaster::graph {
namespace {

// One range of bytes that must not overlap another one that is live at the same time. Several
// values share a buffer when they alias or overwrite each other.
struct Buffer {
  size_t bytes = 0;  // a multiple of the alignment
  NodeId first = 0;
  NodeId last = 0;
  size_t offset = 0;

  [[nodiscard]] int64_t life() const { return last - first + 1; }
  [[nodiscard]] bool LiveAt(NodeId node) const { return first <= node && node <= last; }
  [[nodiscard]] bool Meets(const Buffer& other) const {
    return first <= other.last && other.first <= last;
  }
};

constexpr size_t kOutside = static_cast<size_t>(-1);

class Planner {
 public:
  Planner(const Program& program, const MemoryOptions& options)
      : program_(program), graph_(program.graph), options_(options) {}

  MemoryPlan Run() {
    FindOutsiders();
    FindLastReaders();
    AssignBuffers();
    AddWorkspaces();
    const std::vector<Buffer> by_size =
        Place([](const Buffer& b) { return std::pair(-static_cast<int64_t>(b.bytes), -b.life()); });
    const std::vector<Buffer> by_life =
        Place([](const Buffer& b) { return std::pair(-b.life(), -static_cast<int64_t>(b.bytes)); });
    buffers_ = Arena(by_life) < Arena(by_size) ? by_life : by_size;
    return Result();
  }

 private:
  [[nodiscard]] NodeId end() const { return static_cast<NodeId>(graph_.nodes().size()) - 1; }

  [[nodiscard]] size_t RoundUp(size_t bytes) const {
    return (bytes + options_.alignment - 1) / options_.alignment * options_.alignment;
  }

  [[nodiscard]] size_t Bytes(ValueId id) const {
    const Value& value = graph_.value(id);
    return static_cast<size_t>(Elements(value.shape)) * ByteSize(value.dtype);
  }

  // Parameters, their gradients and moving statistics live in arenas of their own.
  void FindOutsiders() {
    outside_.assign(graph_.values().size(), false);
    const auto mark = [this](ValueId id) {
      if (id != kNoValue) outside_[static_cast<size_t>(id)] = true;
    };
    for (const Parameter& parameter : program_.parameters) {
      mark(parameter.value);
      mark(parameter.gradient);
    }
    for (const Normalization& normalization : program_.normalizations) {
      mark(normalization.moving_mean);
      mark(normalization.moving_variance);
    }
  }

  // A value that nobody reads lives while its node runs; a result lives to the end.
  void FindLastReaders() {
    last_reader_.resize(graph_.values().size());
    for (size_t i = 0; i < last_reader_.size(); ++i) {
      last_reader_[i] = std::max(graph_.values()[i].producer, 0);
    }
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      for (ValueId input : graph_.nodes()[n].inputs) {
        last_reader_[static_cast<size_t>(input)] = static_cast<NodeId>(n);
      }
    }
    for (ValueId result : Results(program_)) last_reader_[static_cast<size_t>(result)] = end();
  }

  void AssignBuffers() {
    buffer_of_.assign(graph_.values().size(), kOutside);
    for (size_t i = 0; i < graph_.values().size(); ++i) {
      if (graph_.values()[i].producer == kFed) Own(static_cast<ValueId>(i), 0);
    }
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.nodes()[n];
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        if (i != 0 || !Share(node, static_cast<NodeId>(n))) {
          Own(node.outputs[i], static_cast<NodeId>(n));
        }
      }
    }
  }

  void Own(ValueId id, NodeId first) {
    if (outside_[static_cast<size_t>(id)]) return;
    buffer_of_[static_cast<size_t>(id)] = buffers_.size();
    buffers_.push_back({RoundUp(Bytes(id)), first, last_reader_[static_cast<size_t>(id)]});
    fed_.push_back(graph_.value(id).producer == kFed);
  }

  // Lays output 0 where the op allows it; false when it needs bytes of its own. A fed value is
  // never overwritten.
  bool Share(const Node& node, NodeId id) {
    const Op* op = FindOp(node.op);
    if (op == nullptr || op->storage == Storage::kOwn) return false;
    const ValueId input = node.inputs[static_cast<size_t>(op->storage_input)];
    const ValueId output = node.outputs[0];
    const size_t buffer = buffer_of_[static_cast<size_t>(input)];
    if (buffer == kOutside || outside_[static_cast<size_t>(output)]) return false;
    const bool dies = buffers_[buffer].last == id && !fed_[buffer];
    if (op->storage == Storage::kInPlace && (!dies || Bytes(input) != Bytes(output))) return false;
    buffer_of_[static_cast<size_t>(output)] = buffer;
    buffers_[buffer].last =
        std::max(buffers_[buffer].last, last_reader_[static_cast<size_t>(output)]);
    return true;
  }

  void AddWorkspaces() {
    first_workspace_ = buffers_.size();
    for (size_t n = 0; n < options_.workspace.size(); ++n) {
      const auto node = static_cast<NodeId>(n);
      buffers_.push_back({RoundUp(options_.workspace[n]), node, node});
    }
  }

  // Each buffer in the order of `key`, ties by number, goes into the smallest gap between those
  // already placed that are live at the same time, else above them.
  template <typename Key>
  [[nodiscard]] std::vector<Buffer> Place(const Key& key) const {
    std::vector<Buffer> placed = buffers_;
    std::vector<size_t> order(buffers_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return key(buffers_[a]) < key(buffers_[b]); });
    for (size_t i = 0; i < order.size(); ++i) {
      std::vector<std::pair<size_t, size_t>> taken;
      for (size_t j = 0; j < i; ++j) {
        const Buffer& other = placed[order[j]];
        if (other.bytes > 0 && other.Meets(placed[order[i]])) {
          taken.emplace_back(other.offset, other.offset + other.bytes);
        }
      }
      std::sort(taken.begin(), taken.end());
      placed[order[i]].offset = BestGap(taken, placed[order[i]].bytes);
    }
    return placed;
  }

  static size_t BestGap(const std::vector<std::pair<size_t, size_t>>& taken, size_t bytes) {
    size_t best = kOutside;
    size_t best_gap = kOutside;
    size_t top = 0;
    for (const auto& [begin, end] : taken) {
      if (begin > top && begin - top >= bytes && begin - top < best_gap) {
        best = top;
        best_gap = begin - top;
      }
      top = std::max(top, end);
    }
    return best == kOutside ? top : best;
  }

  static size_t Arena(const std::vector<Buffer>& buffers) {
    size_t bytes = 0;
    for (const Buffer& buffer : buffers) bytes = std::max(bytes, buffer.offset + buffer.bytes);
    return bytes;
  }

  [[nodiscard]] MemoryPlan Result() const {
    MemoryPlan plan;
    plan.arena_bytes = Arena(buffers_);
    for (NodeId node = 0; node <= end(); ++node) {
      size_t live = 0;
      for (const Buffer& buffer : buffers_) live += buffer.LiveAt(node) ? buffer.bytes : 0;
      plan.lower_bound = std::max(plan.lower_bound, live);
    }
    for (size_t i = 0; i < buffer_of_.size(); ++i) {
      if (buffer_of_[i] == kOutside) {
        plan.values.emplace_back();
        continue;
      }
      const auto id = static_cast<ValueId>(i);
      plan.values.push_back({buffers_[buffer_of_[i]].offset, Bytes(id),
                             std::max(graph_.value(id).producer, 0), last_reader_[i]});
    }
    for (size_t i = first_workspace_; i < buffers_.size(); ++i) {
      const Buffer& buffer = buffers_[i];
      plan.workspaces.push_back(
          {buffer.offset, options_.workspace[i - first_workspace_], buffer.first, buffer.last});
    }
    return plan;
  }

  const Program& program_;
  const Graph& graph_;
  const MemoryOptions& options_;
  std::vector<bool> outside_;        // by value
  std::vector<NodeId> last_reader_;  // by value
  std::vector<size_t> buffer_of_;    // by value
  std::vector<Buffer> buffers_;      // of values, then one a workspace
  std::vector<bool> fed_;            // by buffer of a value
  size_t first_workspace_ = 0;
};

std::string FormatBytes(size_t bytes) {
  static constexpr const char* kUnits[] = {"B", "K", "M", "G", "T"};
  auto amount = static_cast<double>(bytes);
  size_t unit = 0;
  while (amount >= 1024 && unit + 1 < std::size(kUnits)) {
    amount /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{}B", bytes) : fmt::format("{:.2f}{}", amount, kUnits[unit]);
}

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

MemoryPlan PlanMemory(const Program& program, const MemoryOptions& options) {
  return Planner(program, options).Run();
}

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
