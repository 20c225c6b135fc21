// The ring links of one member in one generation: frames to the successor, frames from the
// predecessor, and beats both ways, judged by the product's own ring::BeatMonitor. Owned by a
// ToyRun. It moves frames and knows no step.
//
// Its checks are the ones of worker/ring/grpc: a link comes in only from the predecessor of the
// generation that runs here, and is asked for again until then.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"
#include "ringmaster/v1/fleet.pb.h"
#include "tests/sim/network.h"
#include "tests/sim/toy_state.h"
#include "worker/ring/beat_monitor.h"

namespace ringmaster::sim {

struct Cluster;

// What one member contributes to one round; it goes once round the ring.
struct Frame {
  std::string job;
  GenerationId generation;
  uint64_t step = 0;
  bool farewell = false;  // of the round after the last step
  uint32_t rank = 0;      // whose contribution it is
  std::vector<Contribution> contributions;
  bool ends = false;  // that member asks for the boundary after the step
};

struct Hello {
  std::string job;
  GenerationId generation;
  std::string ticket;  // of the generation
  std::string sender, incarnation;
  bool beats = false;  // of the connection for beats, else of the one for frames
};

class ToyRing : public std::enable_shared_from_this<ToyRing> {
 public:
  struct Place {
    Cluster* cluster = nullptr;
    LifePtr life;
    int host = 0;
    v1::Start start;
    uint32_t rank = 0;
  };
  struct Listener {
    std::function<void()> connected;
    std::function<void(const Frame&)> frame;
    // The link is of no more use. `left`: the neighbour went of its own accord.
    std::function<void(const std::string& peer, const std::string& reason, bool left)> lost;
    std::function<void(const std::string& peer, const std::string& reason)> suspect;
    std::function<ring::Pulse()> pulse;
  };

  ToyRing(Place place, Listener listener);

  // From the start of the run: beats. Frames once S(K) is here.
  void Watch();
  void Connect();
  void Send(const Frame& frame);
  // Says goodbye after the last frame; nothing is heard after it.
  void Leave();
  // Whether this connection belongs to it; then it has it.
  bool Take(const ConnectionPtr& connection, const Hello& hello);

  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(place_.start.ring_size()); }
  [[nodiscard]] uint32_t successor_rank() const { return (place_.rank + 1) % size(); }

 private:
  // One of the two connections to, and the two from a neighbour.
  struct Lane {
    ConnectionPtr connection;
    int side = 0;
    bool accepted = false;
  };

  [[nodiscard]] const v1::RingMember& member(uint32_t rank) const {
    return place_.start.ring(static_cast<int>(rank % size()));
  }
  [[nodiscard]] std::string successor() const { return member(place_.rank + 1).name(); }
  [[nodiscard]] std::string predecessor() const { return member(place_.rank + size() - 1).name(); }
  [[nodiscard]] ring::BeatMonitor::TimePoint Now() const;
  void After(Time delay, void (ToyRing::*what)());
  void OpenFrames() { Open(false); }
  void OpenBeats() { Open(true); }
  void Open(bool beats);
  void Accepted(bool beats, uint64_t connection);
  void Ended(bool beats, bool incoming, uint64_t connection, const std::string& reason);
  void CheckConnected();
  void Judge();
  void SendBeats();

  const Place place_;
  const Listener listener_;
  GenerationId generation_;
  ring::BeatMonitor monitor_;
  bool over_ = false;
  bool connecting_ = false;
  bool connected_ = false;
  std::array<Lane, 2> out_, in_;  // by `beats`
};

// HOST:PORT of a simulated worker, and back.
[[nodiscard]] std::string RingAddress(int host);
[[nodiscard]] int HostOf(const std::string& ring_address);

}  // namespace ringmaster::sim
