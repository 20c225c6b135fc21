#include "common/graph/lives.h"

#include <algorithm>
#include <utility>

namespace ringmaster::graph {
namespace {

class LifeFinder {
 public:
  LifeFinder(std::span<const Turn> turns, std::span<const Room> rooms, size_t alignment)
      : turns_(turns), rooms_(rooms), alignment_(alignment) {}

  Lives Run() && {
    FindLastReaders();
    lives_.buffer_of.assign(rooms_.size(), Lives::kOutside);
    for (size_t i = 0; i < rooms_.size(); ++i) {
      if (rooms_[i].fed) Own(static_cast<ValueId>(i), 0);
    }
    for (size_t n = 0; n < turns_.size(); ++n) {
      const Turn& turn = turns_[n];
      for (size_t i = 0; i < turn.outputs.size(); ++i) {
        if (i != 0 || !Share(turn, static_cast<NodeId>(n))) {
          Own(turn.outputs[i], static_cast<NodeId>(n));
        }
      }
    }
    return std::move(lives_);
  }

 private:
  [[nodiscard]] const Room& room(ValueId id) const { return rooms_[static_cast<size_t>(id)]; }
  NodeId& last_reader(ValueId id) { return lives_.last_readers[static_cast<size_t>(id)]; }

  void FindLastReaders() {
    lives_.last_readers.assign(rooms_.size(), 0);
    for (size_t n = 0; n < turns_.size(); ++n) {
      for (const ValueId input : turns_[n].inputs) last_reader(input) = static_cast<NodeId>(n);
      for (const ValueId output : turns_[n].outputs) last_reader(output) = static_cast<NodeId>(n);
    }
    for (size_t i = 0; i < rooms_.size(); ++i) {
      if (rooms_[i].result) lives_.last_readers[i] = static_cast<NodeId>(turns_.size()) - 1;
      lives_.last_readers[i] = std::max(lives_.last_readers[i], rooms_[i].taken);
    }
  }

  void Own(ValueId id, NodeId first) {
    if (room(id).outside) return;
    lives_.buffer_of[static_cast<size_t>(id)] = lives_.buffers.size();
    const size_t bytes = (room(id).bytes + alignment_ - 1) / alignment_ * alignment_;
    lives_.buffers.push_back({bytes, first, last_reader(id)});
    kept_.push_back(room(id).fed || room(id).taken >= 0);
  }

  // Lays output 0 where the op allows it; false when it needs bytes of its own.
  bool Share(const Turn& turn, NodeId now) {
    if (turn.op->storage == Storage::kOwn) return false;
    const ValueId input = turn.inputs[static_cast<size_t>(turn.op->storage_input)];
    const ValueId output = turn.outputs[0];
    const size_t buffer = lives_.buffer_of[static_cast<size_t>(input)];
    if (buffer == Lives::kOutside || room(output).outside) return false;
    NodeId& last = lives_.buffers[buffer].last;
    const bool dies = last == now && !kept_[buffer];
    if (turn.op->storage == Storage::kInPlace && !dies) return false;
    // Also a reshape's need not be the same: tiles of another shape.
    if (room(input).bytes != room(output).bytes) return false;
    lives_.buffer_of[static_cast<size_t>(output)] = buffer;
    last = std::max(last, last_reader(output));
    if (room(output).taken >= 0) kept_[buffer] = true;
    return true;
  }

  const std::span<const Turn> turns_;
  const std::span<const Room> rooms_;
  const size_t alignment_;
  std::vector<bool> kept_;  // by buffer: never overwritten
  Lives lives_;
};

}  // namespace

std::vector<Room> RoomsOf(const Program& program) {
  std::vector<Room> rooms;
  for (const Value& value : program.graph.values()) {
    rooms.push_back({.bytes = static_cast<size_t>(Elements(value.shape)) * ByteSize(value.dtype),
                     .fed = value.producer == kFed});
  }
  const auto outside = [&](ValueId id) {
    if (id != kNoValue) rooms[static_cast<size_t>(id)].outside = true;
  };
  for (const Parameter& parameter : program.parameters) {
    outside(parameter.value);
    outside(parameter.gradient);
  }
  for (const Parameter& parameter : program.frozen) outside(parameter.value);
  for (const Normalization& normalization : program.normalizations) {
    outside(normalization.moving_mean);
    outside(normalization.moving_variance);
  }
  for (const ValueId result : Results(program)) rooms[static_cast<size_t>(result)].result = true;
  return rooms;
}

std::vector<Turn> TurnsOf(const Graph& graph) {
  std::vector<Turn> turns;
  for (const Node& node : graph.nodes()) {
    turns.push_back({&TraitsOf(node.kind), node.inputs, node.outputs});
  }
  return turns;
}

std::vector<size_t> Lives::LiveBytes(size_t turns) const {
  std::vector<size_t> bytes(turns + 1, 0);  // what is added at each turn, modulo 2^64
  for (const Buffer& buffer : buffers) {
    bytes[static_cast<size_t>(buffer.first)] += buffer.bytes;
    bytes[static_cast<size_t>(buffer.last) + 1] -= buffer.bytes;
  }
  for (size_t n = 1; n <= turns; ++n) bytes[n] += bytes[n - 1];
  bytes.resize(turns);
  return bytes;
}

Lives FindLives(std::span<const Turn> turns, std::span<const Room> rooms, size_t alignment) {
  return LifeFinder(turns, rooms, alignment).Run();
}

}  // namespace ringmaster::graph
