#include "common/graph/memory_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/graph/ops/op_table.h"

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
constexpr size_t kMostRounds = 64;          // of improving one order
constexpr size_t kPairs = size_t{1} << 27;  // of buffers that are compared for one order, so that
                                            // programs of thousands of nodes take no seconds

class Planner {
 public:
  Planner(const Program& program, const MemoryOptions& options)
      : program_(program), graph_(program.graph), options_(options) {}

  MemoryPlan Run() {
    FindOutsiders();
    FindLastReaders();
    AssignBuffers();
    AddWorkspaces();
    lower_bound_ = LowerBound();
    const auto size = [](const Buffer& b) { return static_cast<int64_t>(b.bytes); };
    Improve(Order([&](const Buffer& b) { return std::pair(-size(b), -b.life()); }));
    Improve(Order([&](const Buffer& b) { return std::pair(-b.life(), -size(b)); }));
    buffers_ = best_;
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
    for (const Parameter& parameter : program_.frozen) mark(parameter.value);
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
    const OpTraits& op = TraitsOf(node.kind);
    if (op.storage == Storage::kOwn) return false;
    const ValueId input = node.inputs[static_cast<size_t>(op.storage_input)];
    const ValueId output = node.outputs[0];
    const size_t buffer = buffer_of_[static_cast<size_t>(input)];
    if (buffer == kOutside || outside_[static_cast<size_t>(output)]) return false;
    const bool dies = buffers_[buffer].last == id && !fed_[buffer];
    if (op.storage == Storage::kInPlace && (!dies || Bytes(input) != Bytes(output))) return false;
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

  // Numbers of buffers with bytes, sorted by `key`, ties by number.
  template <typename Key>
  [[nodiscard]] std::vector<size_t> Order(const Key& key) const {
    std::vector<size_t> order(buffers_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::erase_if(order, [&](size_t number) { return buffers_[number].bytes == 0; });
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return key(buffers_[a]) < key(buffers_[b]); });
    return order;
  }

  // Places in that order, and while the arena is larger than it must be, again with the buffer that
  // ends highest placed first. Keeps the smallest arena seen.
  void Improve(std::vector<size_t> order) {
    if (!best_.empty() && Arena(best_) == lower_bound_) return;
    const size_t pairs = order.size() * order.size() / 2 + 1;  // of a round
    const size_t rounds = std::clamp(kPairs / pairs, size_t{1}, kMostRounds);
    for (size_t round = 0; round < rounds; ++round) {
      const std::vector<Buffer> placed = Place(order);
      const size_t arena = Arena(placed);
      if (best_.empty() || arena < Arena(best_)) best_ = placed;
      if (arena == lower_bound_) return;
      const auto highest = std::find_if(order.begin(), order.end(), [&](size_t number) {
        return placed[number].offset + placed[number].bytes == arena;
      });
      if (highest == order.end()) return;  // nothing has bytes
      std::rotate(order.begin(), highest, highest + 1);
    }
  }

  // Each buffer goes into the smallest gap between those already placed that are live at the same
  // time, else above them.
  [[nodiscard]] std::vector<Buffer> Place(const std::vector<size_t>& order) const {
    std::vector<Buffer> placed = buffers_;
    std::vector<const Buffer*> lowest_first;  // those that have their place
    std::vector<std::pair<size_t, size_t>> taken;
    for (const size_t number : order) {
      Buffer& buffer = placed[number];
      taken.clear();
      for (const Buffer* other : lowest_first) {
        if (other->Meets(buffer)) taken.emplace_back(other->offset, other->offset + other->bytes);
      }
      buffer.offset = BestGap(taken, buffer.bytes);
      lowest_first.insert(
          std::ranges::upper_bound(lowest_first, buffer.offset, {}, &Buffer::offset), &buffer);
    }
    return placed;
  }

  // `taken`: lowest first.
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

  [[nodiscard]] size_t LowerBound() const {
    size_t most = 0;
    for (NodeId node = 0; node <= end(); ++node) {
      size_t live = 0;
      for (const Buffer& buffer : buffers_) live += buffer.LiveAt(node) ? buffer.bytes : 0;
      most = std::max(most, live);
    }
    return most;
  }

  [[nodiscard]] MemoryPlan Result() const {
    MemoryPlan plan;
    plan.arena_bytes = Arena(buffers_);
    plan.lower_bound = lower_bound_;
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
  size_t lower_bound_ = 0;
  std::vector<Buffer> best_;  // placed; the smallest arena so far
};

}  // namespace

MemoryPlan PlanMemory(const Program& program, const MemoryOptions& options) {
  return Planner(program, options).Run();
}

}  // namespace ringmaster::graph
