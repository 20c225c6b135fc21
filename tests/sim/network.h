// Simulated TCP between hosts: a connection keeps the order of what is sent in each direction, or
// is broken; nothing is lost inside one that goes on. Delays differ from message to message, a
// direction between two hosts can be blocked (a clog, a partition, a one-way cut), and each side
// sees a break at its own time, or only when a keepalive finds it. It knows no message: what is
// sent is a closure that runs at the other side.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "tests/sim/world.h"

namespace ringmaster::sim {

constexpr int kCoordinatorHost = 0;
constexpr int kClientHost = 1;
constexpr int kFirstWorkerHost = 2;
constexpr int kMaxHosts = 40;

class Connection;
using ConnectionPtr = std::shared_ptr<Connection>;

// One connection; side 0 opened it.
class Connection {
 public:
  using OnEnd = std::function<void(const std::string& reason)>;

  // For as long as this side was not told of the end.
  [[nodiscard]] bool open(int side) const { return !sides_[side].over; }
  // After everything that was sent: the other side's on_end. This side gets nothing any more.
  void Finish(int side, const std::string& reason);
  // At once; what is on its way may be lost. This side gets nothing any more.
  void Cancel(int side);
  void Send(int side, std::function<void()> at_other_side);
  void SetOnEnd(int side, OnEnd on_end) { sides_[side].on_end = std::move(on_end); }
  [[nodiscard]] uint64_t id() const { return id_; }
  [[nodiscard]] int host(int side) const { return sides_[side].host; }

 private:
  friend class Network;
  struct Side {
    int host = 0;
    LifePtr life;
    OnEnd on_end;
    bool over = false;
    bool loses = false;  // what is on its way to it
    Time newest_arrival{0};
    std::deque<std::function<void()>> stalled;  // arrived at a blocked direction
  };
  void Arrive(int side, std::function<void()> what);
  void End(int side, const std::string& reason);

  class Network* network_ = nullptr;
  std::weak_ptr<Connection> self_;
  uint64_t id_ = 0;
  bool accepted_ = false;
  bool broken_ = false;
  std::array<Side, 2> sides_;
};

class Network {
 public:
  explicit Network(World* world) : world_(world) {}
  // Lets go of what processes left in the connections that they hold.
  ~Network();

  // A process begins to serve its host: whatever the one before it had is reset.
  void Bind(int host, const LifePtr& life);
  // The process of this host ended. Silent: its host is gone too, and nobody is told.
  void Unbind(int host, bool silent);

  // `accept` runs at the other side when the connection comes in there; `on_end` at this side when
  // it ends, also when nobody listens.
  ConnectionPtr Connect(int from, int to, const LifePtr& life, Connection::OnEnd on_end,
                        std::function<void(const ConnectionPtr&)> accept);

  // One direction; ends by itself.
  void Block(int from, int to, Time duration);
  void Unblock(int from, int to);
  void UnblockAll();
  [[nodiscard]] bool blocked(int from, int to) const { return blocked_[from][to] != 0; }
  // Breaks every connection between two hosts; each side sees it at its own time.
  void Break(int a, int b);

  [[nodiscard]] World& world() { return *world_; }

 private:
  friend class Connection;
  [[nodiscard]] Time Latency();
  void BreakOne(const ConnectionPtr& connection, int except_side, const std::string& reason);
  void Accept(const ConnectionPtr& connection,
              const std::function<void(const ConnectionPtr&)>& accept);

  World* const world_;
  uint64_t next_id_ = 0;
  uint64_t next_block_ = 0;
  std::map<int, LifePtr> hosts_;
  std::map<uint64_t, std::weak_ptr<Connection>> connections_;
  uint64_t blocked_[kMaxHosts][kMaxHosts] = {};  // 0, or the number of the block
};

}  // namespace ringmaster::sim
