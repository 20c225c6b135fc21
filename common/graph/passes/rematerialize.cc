// What is computed again is a set of forward nodes, chosen greedily: at the turn at which most is
// live, the values that bridge it from their last forward reader to their first backward one are
// worth their bytes; computing them again costs operations, and keeps alive, or computes again,
// what they are made of. In the end every node without which the peak is no higher is taken out
// again. (Chen, Xu, Zhang and Guestrin, "Training deep nets with sublinear memory cost", 2016, drop
// whole segments; Jain and others, "Checkmate", 2020, choose values one by one, as this does.)
#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "common/graph/cost.h"
#include "common/graph/lives.h"
#include "common/graph/passes/passes.h"
#include "common/graph/passes/rewrite.h"

namespace ringmaster::graph {
namespace {

constexpr size_t kAlignment = 64;
constexpr double kLeastGain = 0.01;       // of a round, of what it begins with
constexpr double kLeastSaving = 0.05;     // of the peak
constexpr size_t kMostTurns = 2'000'000;  // that are looked at, in all schedules: no seconds
constexpr size_t kMostNodes = 32;         // of one move
constexpr int kMostTries = 2;             // of a move, each round
constexpr int kMostRounds = 4;

// How a forward node computes its values again: the same node, or another one with its bits.
Node AgainOf(const Node& node) {
  Node again = node;
  again.name += "/again";
  again.again = true;
  if (TraitsOf(node.kind).recompute == Recompute::kByStatistics) {
    const BatchNormAttributes& norm = *node.attributes<BatchNormAttributes>();
    again.kind = BatchNormInference{norm};
    again.inputs.insert(again.inputs.end() - (norm.residual ? 1 : 0), node.outputs.begin() + 1,
                        node.outputs.end());
    again.outputs.resize(1);
  }
  return again;
}

// The first node that needs the seed of a loss; all nodes where there is none.
size_t FirstBackward(const Program& program) {
  std::vector<bool> seeded(program.graph.values().size(), false);
  for (const Seed& seed : program.seeds) seeded[static_cast<size_t>(seed.value)] = true;
  const std::vector<Node>& nodes = program.graph.nodes();
  const auto reads_seed = [&](const Node& node) {
    return std::ranges::any_of(node.inputs,
                               [&](ValueId id) { return bool{seeded[static_cast<size_t>(id)]}; });
  };
  return static_cast<size_t>(std::ranges::find_if(nodes, reads_seed) - nodes.begin());
}

// One node's turn in a schedule, as itself or again.
struct Place {
  size_t node = 0;
  bool again = false;
  bool operator==(const Place&) const = default;
};

// A program's order of execution where some of its forward nodes run again, and what is live then.
// A value that is computed again has a second id.
struct Schedule {
  std::vector<Place> places;
  std::vector<size_t> live;         // bytes, by turn
  std::vector<NodeId> last_reader;  // by id: turns
  std::vector<NodeId> first_late;   // by id of a forward value: the first turn of the backward pass
                                    // that reads it, or what it is computed again as; -1: none
  size_t peak = 0;                  // the turn with most

  [[nodiscard]] size_t most() const { return live[peak]; }
  [[nodiscard]] size_t LiveAt(const Place& place) const {
    const auto turn = std::ranges::find(places, place) - places.begin();
    return static_cast<size_t>(turn) < live.size() ? live[static_cast<size_t>(turn)] : 0;
  }
};

using Chosen = std::vector<bool>;  // by node

class Rematerializer {
 public:
  explicit Rematerializer(const Program& program)
      : program_(program),
        nodes_(program.graph.nodes()),
        values_(program.graph.values().size()),
        forward_(FirstBackward(program)),
        rooms_(RoomsOf(program)) {
    for (size_t n = 0; n < forward_; ++n) {
      again_.push_back(AgainOf(nodes_[n]));
      allowed_.push_back(MayBeChosen(n));
      cost_.push_back(Operations(program.graph, again_.back()));
      light_.push_back(MultiplyAdds(program.graph, nodes_[n]) == 0);
    }
    rooms_.resize(2 * values_);
    for (size_t i = 0; i < values_; ++i) rooms_[values_ + i].bytes = rooms_[i].bytes;
    FindEarlyReaders();
  }

  // Those that run again; none where that is not worth it.
  Chosen Choose() {
    Chosen chosen(forward_, false);
    Schedule now = Look(chosen);
    const size_t before = now.most();
    for (int round = 0; round < kMostRounds; ++round) {
      const auto least = static_cast<double>(now.most()) * (1 - kLeastGain);
      tries_.assign(kReaches * forward_, 0);
      while (Lower(&chosen, &now)) {
      }
      TakeOut(now.most(), &chosen);
      now = Look(chosen);
      if (static_cast<double>(now.most()) > least) break;
    }
    const double saved = 1 - static_cast<double>(now.most()) / static_cast<double>(before);
    if (saved < kLeastSaving) chosen.assign(forward_, false);
    return chosen;
  }

  // The order of execution with those.
  [[nodiscard]] std::vector<Place> PlacesOf(const Chosen& chosen) const;
  [[nodiscard]] const Node& again(size_t node) const { return again_[node]; }

 private:
  // How far a move goes up the chain of what a value is made of, where that is gone by then: not at
  // all, which keeps it; as far as there are no multiply-adds; all the way.
  enum Reach : uint8_t { kNode, kLight, kAll, kReaches };
  struct Move {
    size_t key = 0;  // in tries_
    std::vector<size_t> nodes;
    double saved = 0;  // at the peak, by an estimate
    double cost = 0;
    [[nodiscard]] double worth() const { return saved / cost; }
  };

  [[nodiscard]] bool MayBeChosen(size_t n) const {
    if (TraitsOf(nodes_[n].kind).recompute == Recompute::kNever) return false;
    return std::ranges::none_of(again_[n].outputs, [&](ValueId id) {
      const Room& room = rooms_[static_cast<size_t>(id)];
      return room.result || room.outside;
    });
  }

  [[nodiscard]] NodeId producer(ValueId id) const { return program_.graph.value(id).producer; }
  [[nodiscard]] bool IsChosen(const Chosen& chosen, ValueId id) const {
    const NodeId node = producer(id);
    if (node == kFed || static_cast<size_t>(node) >= forward_) return false;
    const auto n = static_cast<size_t>(node);
    return chosen[n] && std::ranges::find(again_[n].outputs, id) != again_[n].outputs.end();
  }

  void FindEarlyReaders() {
    last_early_.assign(values_, -1);
    aliases_.resize(forward_);
    for (size_t n = 0; n < forward_; ++n) {
      for (const ValueId input : nodes_[n].inputs) {
        last_early_[static_cast<size_t>(input)] = static_cast<NodeId>(n);
      }
      for (const ValueId output : nodes_[n].outputs) {
        last_early_[static_cast<size_t>(output)] = static_cast<NodeId>(n);
      }
      const OpTraits& op = TraitsOf(nodes_[n].kind);
      if (op.storage != Storage::kAlias) continue;
      const NodeId source = producer(nodes_[n].inputs[static_cast<size_t>(op.storage_input)]);
      if (source != kFed) aliases_[static_cast<size_t>(source)].push_back(n);
    }
  }

  Schedule Look(const Chosen& chosen);
  bool Lower(Chosen* chosen, Schedule* now);
  void TakeOut(size_t limit, Chosen* chosen);
  std::vector<Move> Moves(const Chosen& chosen, const Schedule& now) const;
  [[nodiscard]] bool Bridges(ValueId id, const Schedule& now) const {
    const auto peak = static_cast<NodeId>(now.peak);
    return last_early_[static_cast<size_t>(id)] < peak &&
           now.first_late[static_cast<size_t>(id)] > peak;
  }
  std::optional<Move> MoveFrom(size_t node, Reach reach, const Chosen& chosen,
                               const Schedule& now) const;
  bool Extend(Move* move, size_t node, NodeId turn, Reach reach, const Chosen& chosen,
              const Schedule& now) const;

  const Program& program_;
  const std::vector<Node>& nodes_;
  const size_t values_;
  const size_t forward_;     // nodes before the backward pass
  std::vector<Room> rooms_;  // by id
  std::vector<Node> again_;  // by forward node, as those below
  std::vector<bool> allowed_, light_;
  std::vector<double> cost_;
  std::vector<std::vector<size_t>> aliases_;  // nodes whose output is the same bytes as its own
  std::vector<NodeId> last_early_;            // by value: the last forward turn that needs it
  std::vector<int> tries_;                    // of each move that failed
  size_t looked_ = 0;                         // at so many turns
};

// What a node of the backward pass needs runs directly before it, in the order of the forward pass.
std::vector<Place> Rematerializer::PlacesOf(const Chosen& chosen) const {
  std::vector<Place> places;
  std::vector<bool> done(forward_, false);
  std::vector<size_t> needed;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    needed.clear();
    const auto need = [&](const std::vector<ValueId>& inputs) {
      for (const ValueId input : inputs) {
        const auto maker = static_cast<size_t>(producer(input));
        if (!IsChosen(chosen, input) || done[maker]) continue;
        done[maker] = true;
        needed.push_back(maker);
      }
    };
    if (n >= forward_) need(nodes_[n].inputs);
    for (size_t i = 0; i < needed.size(); ++i) need(again_[needed[i]].inputs);
    std::ranges::sort(needed);
    for (const size_t again : needed) places.push_back({again, true});
    places.push_back({n, false});
  }
  return places;
}

Schedule Rematerializer::Look(const Chosen& chosen) {
  Schedule schedule;
  schedule.places = PlacesOf(chosen);
  looked_ += schedule.places.size();
  // Operands under the ids that they have in this schedule.
  std::vector<ValueId> ids;
  std::vector<std::pair<size_t, size_t>> operands;  // where a turn's inputs and outputs begin
  const auto second = [&](ValueId id) { return id + static_cast<ValueId>(values_); };
  for (const Place& place : schedule.places) {
    const Node& node = place.again ? again_[place.node] : nodes_[place.node];
    const bool late = place.again || place.node >= forward_;
    const size_t inputs = ids.size();
    for (const ValueId id : node.inputs) {
      ids.push_back(late && IsChosen(chosen, id) ? second(id) : id);
    }
    operands.emplace_back(inputs, ids.size());
    for (const ValueId id : node.outputs) ids.push_back(place.again ? second(id) : id);
  }
  operands.emplace_back(ids.size(), ids.size());
  std::vector<Turn> turns;
  schedule.first_late.assign(values_, -1);
  for (size_t i = 0; i < schedule.places.size(); ++i) {
    const Place& place = schedule.places[i];
    const Node& node = place.again ? again_[place.node] : nodes_[place.node];
    const std::span<const ValueId> all(ids);
    const auto [inputs, outputs] = operands[i];
    turns.push_back({&TraitsOf(node.kind), all.subspan(inputs, outputs - inputs),
                     all.subspan(outputs, operands[i + 1].first - outputs)});
    if (!place.again && place.node < forward_) continue;
    for (const ValueId id : node.inputs) {
      NodeId& first = schedule.first_late[static_cast<size_t>(id)];
      if (first < 0) first = static_cast<NodeId>(i);
    }
  }
  Lives lives = FindLives(turns, rooms_, kAlignment);
  schedule.live = lives.LiveBytes(turns.size());
  schedule.last_reader = std::move(lives.last_readers);
  schedule.peak =
      static_cast<size_t>(std::ranges::max_element(schedule.live) - schedule.live.begin());
  return schedule;
}

// Adds to the move that the node runs again, at that turn or before; false where that is not
// allowed or too much.
bool Rematerializer::Extend(Move* move, size_t node, NodeId turn, Reach reach, const Chosen& chosen,
                            const Schedule& now) const {
  if (std::ranges::find(move->nodes, node) != move->nodes.end()) return true;
  if (chosen[node]) return true;
  if (!allowed_[node] || move->nodes.size() == kMostNodes) return false;
  move->nodes.push_back(node);
  move->cost += cost_[node];
  for (const ValueId id : again_[node].outputs) {
    if (Bridges(id, now)) move->saved += static_cast<double>(rooms_[static_cast<size_t>(id)].bytes);
  }
  // The same bytes under another shape are gone only when both are.
  for (const size_t alias : aliases_[node]) {
    if (Bridges(nodes_[alias].outputs[0], now) && !Extend(move, alias, turn, reach, chosen, now)) {
      return false;
    }
  }
  const bool alias = TraitsOf(nodes_[node].kind).storage == Storage::kAlias;
  for (const ValueId id : again_[node].inputs) {
    const Room& room = rooms_[static_cast<size_t>(id)];
    if (room.outside || IsChosen(chosen, id)) continue;
    const NodeId last = now.last_reader[static_cast<size_t>(id)];
    if (last >= turn && !alias) continue;
    const NodeId maker = producer(id);
    const bool climb =
        maker != kFed && allowed_[static_cast<size_t>(maker)] &&
        (alias || reach == kAll || (reach == kLight && light_[static_cast<size_t>(maker)]));
    if (!climb) {
      if (last < static_cast<NodeId>(now.peak)) move->saved -= static_cast<double>(room.bytes);
    } else if (!Extend(move, static_cast<size_t>(maker), turn, reach, chosen, now)) {
      return false;
    }
  }
  return true;
}

std::optional<Rematerializer::Move> Rematerializer::MoveFrom(size_t node, Reach reach,
                                                             const Chosen& chosen,
                                                             const Schedule& now) const {
  Move move = {.key = kReaches * node + reach};
  NodeId turn = static_cast<NodeId>(now.places.size());  // of its first reader
  for (const ValueId id : again_[node].outputs) {
    const NodeId first = now.first_late[static_cast<size_t>(id)];
    if (first >= 0) turn = std::min(turn, first);
  }
  if (!Extend(&move, node, turn, reach, chosen, now) || move.saved <= 0) return std::nullopt;
  move.cost = std::max(move.cost, 1.0);
  return move;
}

// Best first.
std::vector<Rematerializer::Move> Rematerializer::Moves(const Chosen& chosen,
                                                        const Schedule& now) const {
  std::vector<Move> moves;
  for (size_t n = 0; n < forward_; ++n) {
    if (chosen[n] || !allowed_[n]) continue;
    if (std::ranges::none_of(again_[n].outputs, [&](ValueId id) { return Bridges(id, now); })) {
      continue;
    }
    size_t nodes = 0;
    for (const Reach reach : {kNode, kLight, kAll}) {
      if (tries_[kReaches * n + reach] >= kMostTries) continue;
      std::optional<Move> move = MoveFrom(n, reach, chosen, now);
      if (!move || move->nodes.size() == nodes) continue;
      nodes = move->nodes.size();
      moves.push_back(*std::move(move));
    }
  }
  std::ranges::stable_sort(moves, std::greater(), &Move::worth);
  return moves;
}

// Makes less live at the peak, and nowhere more than there; many moves at once where that does.
// False: no move does.
bool Rematerializer::Lower(Chosen* chosen, Schedule* now) {
  const std::vector<Move> moves = Moves(*chosen, *now);
  const Place peak = now->places[now->peak];
  size_t batch = std::max<size_t>(1, moves.size() / 8);
  for (size_t first = 0; first < moves.size() && looked_ < kMostTurns;) {
    Chosen tried = *chosen;
    const size_t end = std::min(first + batch, moves.size());
    for (size_t i = first; i < end; ++i) {
      for (const size_t node : moves[i].nodes) tried[node] = true;
    }
    Schedule then = Look(tried);
    if (then.most() <= now->most() && then.LiveAt(peak) < now->most()) {
      *chosen = std::move(tried);
      *now = std::move(then);
      return true;
    }
    if (batch > 1) {
      batch /= 2;
    } else {
      ++tries_[moves[first++].key];
    }
  }
  return false;
}

// Nodes without which no more than `limit` is live, the dearest first.
void Rematerializer::TakeOut(size_t limit, Chosen* chosen) {
  std::vector<size_t> nodes;
  for (size_t n = 0; n < forward_; ++n) {
    if ((*chosen)[n]) nodes.push_back(n);
  }
  std::ranges::stable_sort(nodes, std::greater(), [&](size_t n) { return cost_[n]; });
  for (const size_t node : nodes) {
    if (looked_ >= 2 * kMostTurns) return;
    (*chosen)[node] = false;
    if (Look(*chosen).most() > limit) (*chosen)[node] = true;
  }
}

}  // namespace

void Rematerialize(Program* program) {
  if (program->seeds.empty()) return;  // it has no backward pass
  Rematerializer rematerializer(*program);
  const Chosen chosen = rematerializer.Choose();
  if (std::ranges::find(chosen, true) == chosen.end()) return;
  const Graph& graph = program->graph;
  Rewriter rewriter(*program);
  for (size_t i = 0; i < graph.values().size(); ++i) {
    if (graph.values()[i].producer == kFed) rewriter.CopyFed(static_cast<ValueId>(i));
  }
  for (const Place& place : rematerializer.PlacesOf(chosen)) {
    rewriter.CopyNode(place.again ? rematerializer.again(place.node) : graph.nodes()[place.node]);
  }
  std::move(rewriter).Finish(program);
  RemoveDeadNodes(program);  // what only the backward pass ever read
}

}  // namespace ringmaster::graph
