#include "common/graph/memory_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/graph/lives.h"

namespace ringmaster::graph {
namespace {

// A buffer of values, or a workspace, and where it lies.
struct Buffer : Lives::Buffer {
  size_t offset = 0;

  [[nodiscard]] int64_t life() const { return last - first + 1; }
  [[nodiscard]] bool Meets(const Buffer& other) const {
    return first <= other.last && other.first <= last;
  }
};

constexpr size_t kNowhere = static_cast<size_t>(-1);
constexpr size_t kMostRounds = 64;          // of improving one order
constexpr size_t kPairs = size_t{1} << 27;  // of buffers that are compared for one order, so that
                                            // programs of thousands of nodes take no seconds

class Planner {
 public:
  Planner(const Program& program, const MemoryOptions& options)
      : graph_(program.graph),
        options_(options),
        rooms_(RoomsIn(program, options)),
        lives_(FindLives(TurnsOf(program.graph), rooms_, options.alignment)) {}

  MemoryPlan Run() {
    for (const Lives::Buffer& buffer : lives_.buffers) buffers_.push_back({buffer});
    AddWorkspaces();
    lower_bound_ = LowerBound();
    const auto size = [](const Buffer& b) { return static_cast<int64_t>(b.bytes); };
    Improve(Order([&](const Buffer& b) { return std::pair(-size(b), -b.life()); }));
    Improve(Order([&](const Buffer& b) { return std::pair(-b.life(), -size(b)); }));
    buffers_ = best_;
    return Result();
  }

 private:
  static std::vector<Room> RoomsIn(const Program& program, const MemoryOptions& options) {
    std::vector<Room> rooms = RoomsOf(program);
    for (const auto& [value, node] : options.taken) {
      Room& room = rooms[static_cast<size_t>(value)];
      room.outside = room.result = false;
      room.taken = std::max(room.taken, node);
    }
    for (const ValueId value : options.elsewhere) rooms[static_cast<size_t>(value)].outside = true;
    for (size_t i = 0; options.bytes_of != nullptr && i < rooms.size(); ++i) {
      if (rooms[i].bytes > 0) rooms[i].bytes = options.bytes_of(program.graph.values()[i]);
    }
    return rooms;
  }

  void AddWorkspaces() {
    const size_t alignment = options_.alignment;
    for (size_t n = 0; n < options_.workspace.size(); ++n) {
      const auto node = static_cast<NodeId>(n);
      const size_t bytes = (options_.workspace[n] + alignment - 1) / alignment * alignment;
      buffers_.push_back({{bytes, node, node}});
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
    size_t best = kNowhere;
    size_t best_gap = kNowhere;
    size_t top = 0;
    for (const auto& [begin, end] : taken) {
      if (begin > top && begin - top >= bytes && begin - top < best_gap) {
        best = top;
        best_gap = begin - top;
      }
      top = std::max(top, end);
    }
    return best == kNowhere ? top : best;
  }

  static size_t Arena(const std::vector<Buffer>& buffers) {
    size_t bytes = 0;
    for (const Buffer& buffer : buffers) bytes = std::max(bytes, buffer.offset + buffer.bytes);
    return bytes;
  }

  [[nodiscard]] size_t LowerBound() const {
    std::vector<size_t> live = lives_.LiveBytes(graph_.nodes().size());
    for (size_t i = lives_.buffers.size(); i < buffers_.size(); ++i) {
      live[static_cast<size_t>(buffers_[i].first)] += buffers_[i].bytes;
    }
    return live.empty() ? 0 : *std::ranges::max_element(live);
  }

  [[nodiscard]] MemoryPlan Result() const {
    MemoryPlan plan;
    plan.arena_bytes = Arena(buffers_);
    plan.lower_bound = lower_bound_;
    for (size_t i = 0; i < rooms_.size(); ++i) {
      const size_t buffer = lives_.buffer_of[i];
      if (buffer == Lives::kOutside) {
        plan.values.emplace_back();
        continue;
      }
      plan.values.push_back({buffers_[buffer].offset, rooms_[i].bytes,
                             std::max(graph_.values()[i].producer, 0), lives_.last_readers[i]});
    }
    for (size_t n = 0; n < options_.workspace.size(); ++n) {
      const Buffer& buffer = buffers_[lives_.buffers.size() + n];
      plan.workspaces.push_back({buffer.offset, options_.workspace[n], buffer.first, buffer.last});
    }
    return plan;
  }

  const Graph& graph_;
  const MemoryOptions& options_;
  const std::vector<Room> rooms_;  // by value
  const Lives lives_;
  std::vector<Buffer> buffers_;  // those of lives_, then one a workspace
  size_t lower_bound_ = 0;
  std::vector<Buffer> best_;  // placed; the smallest arena so far
};

}  // namespace

MemoryPlan PlanMemory(const Program& program, const MemoryOptions& options) {
  return Planner(program, options).Run();
}

}  // namespace ringmaster::graph
