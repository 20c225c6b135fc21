#include "tests/sim/toy_ring.h"

#include <fmt/format.h>

#include <utility>

#include "common/planted_bug.h"
#include "tests/sim/cluster.h"

namespace ringmaster::sim {
namespace {

constexpr Time kLinkAgain = milliseconds(15);
constexpr const char* kGoodbye = "goodbye";
constexpr const char* kRefusal = "refused";

}  // namespace

std::string RingAddress(int host) { return fmt::format("10.0.0.{}:7000", host); }

int HostOf(const std::string& ring_address) {
  constexpr size_t kPrefix = sizeof("10.0.0.") - 1;
  return std::stoi(ring_address.substr(kPrefix));
}

ToyRing::ToyRing(Place place, Listener listener)
    : place_(std::move(place)),
      listener_(std::move(listener)),
      generation_{place_.start.generation().term(), place_.start.generation().counter()},
      monitor_(successor(), predecessor(), {}, Now()) {}

ring::BeatMonitor::TimePoint ToyRing::Now() const {
  return ring::BeatMonitor::TimePoint(place_.cluster->world.now());
}

void ToyRing::After(Time delay, void (ToyRing::*what)()) {
  place_.cluster->world.After(delay, place_.life, [weak = weak_from_this(), what] {
    const std::shared_ptr<ToyRing> self = weak.lock();
    if (self != nullptr && !self->over_) (self.get()->*what)();
  });
}

void ToyRing::Watch() {
  Open(true);
  After(milliseconds(50), &ToyRing::Judge);
}

void ToyRing::Connect() {
  connecting_ = true;
  Open(false);
}

void ToyRing::Open(bool beats) {
  const Hello hello{place_.start.job_id(),
                    generation_,
                    place_.start.ticket(),
                    member(place_.rank).name(),
                    member(place_.rank).incarnation(),
                    beats};
  const int to = HostOf(member(place_.rank + 1).ring_address());
  const auto id = std::make_shared<uint64_t>(0);
  const ConnectionPtr connection = place_.cluster->network.Connect(
      place_.host, to, place_.life,
      [weak = weak_from_this(), beats, id](const std::string& reason) {
        if (const auto self = weak.lock()) self->Ended(beats, false, *id, reason);
      },
      [cluster = place_.cluster, to, hello](const ConnectionPtr& incoming) {
        cluster->TrainerAt(to).AcceptLink(incoming, hello);
      });
  *id = connection->id();
  out_[beats] = {connection, 0, false};
}

bool ToyRing::Take(const ConnectionPtr& connection, const Hello& hello) {
  const v1::RingMember& expected = member(place_.rank + size() - 1);
  if (over_ || hello.job != place_.start.job_id() || hello.generation != generation_ ||
      hello.ticket != place_.start.ticket() || hello.sender != expected.name() ||
      hello.incarnation != expected.incarnation()) {
    return false;
  }
  Lane& lane = in_[hello.beats];
  if (lane.accepted || (!hello.beats && !connecting_)) return false;
  lane = {connection, 1, true};
  connection->SetOnEnd(1, [weak = weak_from_this(), beats = hello.beats,
                           id = connection->id()](const std::string& reason) {
    if (const auto self = weak.lock()) self->Ended(beats, true, id, reason);
  });
  connection->Send(1, [cluster = place_.cluster, host = HostOf(expected.ring_address()),
                       beats = hello.beats, id = connection->id()] {
    if (ToyRing* ring = cluster->TrainerAt(host).ring()) ring->Accepted(beats, id);
  });
  if (hello.beats) monitor_.Connected(ring::Edge::kPredecessor, Now());
  CheckConnected();
  return true;
}

void ToyRing::Accepted(bool beats, uint64_t connection) {
  Lane& lane = out_[beats];
  if (over_ || lane.connection == nullptr || lane.connection->id() != connection) return;
  lane.accepted = true;
  if (beats) monitor_.Connected(ring::Edge::kSuccessor, Now());
  CheckConnected();
}

void ToyRing::CheckConnected() {
  if (connected_ || !out_[false].accepted || !in_[false].accepted) return;
  connected_ = true;
  listener_.connected();
}

void ToyRing::Ended(bool beats, bool incoming, uint64_t connection, const std::string& reason) {
  Lane& lane = incoming ? in_[beats] : out_[beats];
  if (over_ || lane.connection == nullptr || lane.connection->id() != connection) return;
  const bool accepted = lane.accepted;
  lane = {};
  const bool left = reason == kGoodbye;
  if (beats && accepted) {
    const ring::Edge edge = incoming ? ring::Edge::kPredecessor : ring::Edge::kSuccessor;
    left ? monitor_.Left(edge) : monitor_.Broke(edge, reason);
  } else if (!incoming && !accepted) {
    After(kLinkAgain, beats ? &ToyRing::OpenBeats : &ToyRing::OpenFrames);
  } else if (incoming || !left) {
    // A successor that left has everything that it needed of us: its end is noticed when we send.
    listener_.lost(incoming ? predecessor() : successor(), reason, left);
  }
}

void ToyRing::Send(const Frame& frame) {
  if (over_) return;
  const Lane& lane = out_[false];
  if (lane.connection == nullptr || !lane.accepted) {
    listener_.lost(successor(), "it left", true);
    return;
  }
  const int to = HostOf(member(place_.rank + 1).ring_address());
  lane.connection->Send(
      0, [cluster = place_.cluster, to, frame] { cluster->TrainerAt(to).ReceiveFrame(frame); });
}

void ToyRing::Judge() {
  const ring::BeatMonitor::Verdict verdict = monitor_.Tick(Now());
  if (verdict.beat) SendBeats();
  const auto delay = std::chrono::duration_cast<Time>(monitor_.due() - Now());
  After(std::max(delay, Time(milliseconds(1))), &ToyRing::Judge);
  for (const ring::Accusation& charge : verdict.accusations) {
    listener_.suspect(charge.peer, charge.reason);
    if (over_) return;
  }
}

void ToyRing::SendBeats() {
  const ring::Pulse pulse = listener_.pulse();
  const auto send = [&](const Lane& lane, uint32_t rank, ring::Edge at_receiver) {
    if (lane.connection == nullptr || !lane.accepted) return;
    const int to = HostOf(member(rank).ring_address());
    lane.connection->Send(
        lane.side, [cluster = place_.cluster, to, at_receiver, pulse, generation = generation_] {
          ToyRing* ring = cluster->TrainerAt(to).ring();
          if (ring == nullptr || ring->over_ || ring->generation_ != generation) return;
          ring->monitor_.Heard(at_receiver, pulse, ring->Now());
        });
  };
  send(out_[true], place_.rank + 1, ring::Edge::kPredecessor);
  send(in_[true], place_.rank + size() - 1, ring::Edge::kSuccessor);
}

void ToyRing::Leave() {
  if (std::exchange(over_, true)) return;
  for (Lane* lane : {&out_[0], &out_[1], &in_[0], &in_[1]}) {
    if (lane->connection == nullptr) continue;
    if (lane->accepted) {
      lane->connection->Finish(lane->side, kGoodbye);
    } else {
      lane->connection->Cancel(lane->side);
    }
    *lane = {};
  }
}

}  // namespace ringmaster::sim
