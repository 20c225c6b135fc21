#include "tests/sim/network.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ringmaster::sim {
namespace {

// gRPC's keepalive of the session, as worker/session.cc and coordinator/daemon.cc set it.
constexpr Time kKeepalive = seconds(7);
constexpr Time kRefused = milliseconds(2);
constexpr Time kConnectLimit = seconds(3);  // common/rpc/channel.cc

}  // namespace

void Connection::Send(int side, std::function<void()> what) {
  const int to = 1 - side;
  if (sides_[side].over || broken_) return;
  World& world = network_->world();
  Time& newest = sides_[to].newest_arrival;
  newest = std::max(newest, world.now() + network_->Latency());
  world.After(newest - world.now(), nullptr,
              [self = self_.lock(), to, what = std::move(what)]() mutable {
                self->Arrive(to, std::move(what));
              });
}

void Connection::Arrive(int to, std::function<void()> what) {
  Side& side = sides_[to];
  if (side.over || (broken_ && side.loses)) return;
  if (!side.stalled.empty() || network_->blocked(sides_[1 - to].host, side.host)) {
    side.stalled.push_back(std::move(what));
    return;
  }
  if (side.life == nullptr) return what();  // the opening, at a host where it is accepted or not
  network_->world().After(Time(0), side.life, [self = self_.lock(), to, what = std::move(what)] {
    if (!self->sides_[to].over) what();
  });
}

void Connection::End(int side, const std::string& reason) {
  if (std::exchange(sides_[side].over, true)) return;
  // The closures of a side hold its owner, who holds the connection.
  if (const OnEnd on_end = std::exchange(sides_[side].on_end, nullptr)) on_end(reason);
}

void Connection::Finish(int side, const std::string& reason) {
  const int to = 1 - side;
  Send(side, [self = self_.lock(), to, reason] { self->End(to, reason); });
  sides_[side].over = true;
  sides_[side].on_end = nullptr;
}

void Connection::Cancel(int side) {
  if (std::exchange(sides_[side].over, true)) return;
  sides_[side].on_end = nullptr;
  network_->BreakOne(self_.lock(), side, "connection lost");
}

Network::~Network() {
  for (const auto& [id, weak] : connections_) {
    const ConnectionPtr connection = weak.lock();
    if (connection == nullptr) continue;
    for (Connection::Side& side : connection->sides_) {
      side.on_end = nullptr;
      side.stalled.clear();
      if (side.life != nullptr) side.life->held.clear();
    }
  }
}

Time Network::Latency() {
  Random& random = world_->random();
  // Mostly a local network; now and then a packet is sent again.
  if (random.OneIn(50)) return milliseconds(random.Between(5, 60));
  return microseconds(random.Between(50, 900));
}

void Network::Bind(int host, const LifePtr& life) {
  hosts_[host] = life;
  for (const auto& [id, weak] : connections_) {
    const ConnectionPtr connection = weak.lock();
    if (connection == nullptr || connection->broken_) continue;
    for (int side = 0; side < 2; ++side) {
      const Connection::Side& mine = connection->sides_[side];
      if (mine.host == host && mine.life != nullptr && mine.life != life) {
        BreakOne(connection, side, "connection reset: the process is another one");
        break;
      }
    }
  }
}

void Network::Unbind(int host, bool silent) {
  hosts_.erase(host);
  std::erase_if(connections_, [](const auto& entry) { return entry.second.expired(); });
  std::vector<ConnectionPtr> mine;
  for (const auto& [id, weak] : connections_) {
    if (ConnectionPtr connection = weak.lock()) mine.push_back(std::move(connection));
  }
  for (const ConnectionPtr& connection : mine) {
    for (int side = 0; side < 2; ++side) {
      if (connection->sides_[side].host != host || connection->broken_) continue;
      if (!connection->accepted_ && side == 1) continue;
      connection->sides_[side].over = true;
      connection->sides_[side].on_end = nullptr;
      if (silent) {
        world_->After(kKeepalive, nullptr, [this, connection, side] {
          BreakOne(connection, side, "keepalive: no answer");
        });
      } else {
        BreakOne(connection, side, "connection reset");
      }
      break;
    }
  }
}

void Network::BreakOne(const ConnectionPtr& connection, int except_side,
                       const std::string& reason) {
  if (std::exchange(connection->broken_, true)) return;
  for (int side = 0; side < 2; ++side) {
    connection->sides_[side].loses = world_->random().OneIn(2);
    if (side == except_side) continue;
    const Connection::Side& told = connection->sides_[side];
    const int from = connection->sides_[1 - side].host;
    // Seen after what is on its way to that side, or at once when that is lost.
    Time delay = Latency();
    if (!told.loses) delay = std::max(delay, told.newest_arrival - world_->now() + Time(2));
    // Through a blocked direction nothing comes, not even a reset: the keepalive finds it.
    if (blocked_[from][told.host] != 0) delay = kKeepalive;
    world_->After(delay, told.life, [connection, side, reason] { connection->End(side, reason); });
  }
}

ConnectionPtr Network::Connect(int from, int to, const LifePtr& life, Connection::OnEnd on_end,
                               std::function<void(const ConnectionPtr&)> accept) {
  auto connection = std::make_shared<Connection>();
  connection->network_ = this;
  connection->self_ = connection;
  connection->id_ = ++next_id_;
  connection->sides_[0].host = from;
  connection->sides_[0].life = life;
  connection->sides_[0].on_end = std::move(on_end);
  connection->sides_[1].host = to;
  connections_[connection->id_] = connection;
  if (blocked_[to][from] != 0 || blocked_[from][to] != 0) {
    world_->After(kConnectLimit, life, [connection] { connection->End(0, "cannot connect"); });
    return connection;
  }
  connection->Send(0,
                   [this, connection, accept = std::move(accept)] { Accept(connection, accept); });
  return connection;
}

void Network::Accept(const ConnectionPtr& connection,
                     const std::function<void(const ConnectionPtr&)>& accept) {
  const auto listener = hosts_.find(connection->sides_[1].host);
  if (listener == hosts_.end()) {
    connection->broken_ = connection->sides_[1].over = true;
    world_->After(kRefused, connection->sides_[0].life,
                  [connection] { connection->End(0, "connection refused"); });
    return;
  }
  connection->accepted_ = true;
  connection->sides_[1].life = listener->second;
  world_->After(Time(0), listener->second, [connection, accept] {
    if (!connection->sides_[1].over) accept(connection);
  });
}

void Network::Block(int from, int to, Time duration) {
  const uint64_t block = ++next_block_;
  blocked_[from][to] = block;
  world_->After(duration, nullptr, [this, from, to, block] {
    if (blocked_[from][to] == block) Unblock(from, to);
  });
  world_->After(kKeepalive, nullptr, [this, from, to, block] {
    if (blocked_[from][to] == block) Break(from, to);
  });
}

void Network::Unblock(int from, int to) {
  blocked_[from][to] = 0;
  for (const auto& [id, weak] : std::map(connections_)) {
    const ConnectionPtr connection = weak.lock();
    if (connection == nullptr) continue;
    for (int side = 0; side < 2; ++side) {
      Connection::Side& mine = connection->sides_[side];
      if (mine.host != to || connection->sides_[1 - side].host != from) continue;
      for (std::function<void()>& what : std::exchange(mine.stalled, {})) {
        connection->Arrive(side, std::move(what));
      }
    }
  }
}

void Network::UnblockAll() {
  for (int from = 0; from < kMaxHosts; ++from) {
    for (int to = 0; to < kMaxHosts; ++to) {
      if (blocked_[from][to] != 0) Unblock(from, to);
    }
  }
}

void Network::Break(int a, int b) {
  for (const auto& [id, weak] : std::map(connections_)) {
    const ConnectionPtr connection = weak.lock();
    if (connection == nullptr) continue;
    const int x = connection->sides_[0].host, y = connection->sides_[1].host;
    if (!(x == a && y == b) && !(x == b && y == a)) continue;
    if (connection->broken_) continue;
    connection->broken_ = true;
    for (int side = 0; side < 2; ++side) {
      connection->sides_[side].loses = world_->random().OneIn(2);
      const Time delay = world_->random().OneIn(3)
                             ? milliseconds(world_->random().Between(50, 2000))
                             : milliseconds(world_->random().Between(0, 20));
      world_->After(delay, connection->sides_[side].life,
                    [connection, side] { connection->End(side, "connection lost"); });
    }
  }
}

}  // namespace ringmaster::sim
