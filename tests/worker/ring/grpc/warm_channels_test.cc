#include "worker/ring/grpc/warm_channels.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/rpc/channel.h"
#include "tests/support/log_lines.h"
#include "tests/worker/ring/grpc/port_ring.h"
#include "worker/ring/grpc/channel_options.h"
#include "worker/ring/grpc/ring_port.h"

namespace ringmaster::ring {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Peer = WarmChannels::Peer;
using Use = WarmChannels::Use;

constexpr std::chrono::seconds kPatience{20};

// Channels to ports of this process, counted as they are made.
struct Warmed {
  explicit Warmed(WarmChannels::Options options = {}) {
    options.dial = [this](const Peer& peer, Use use) {
      auto made = Dialer().Dial(
          peer.address, {}, use == Use::kLink ? LinkChannelArguments() : PulseChannelArguments());
      grpc::Channel* const raw = made.get();
      const std::shared_ptr<grpc::Channel> channel(
          raw, [this, made = std::move(made)](grpc::Channel*) mutable {
            made.reset();
            MutexLock lock(mu);
            changed.NotifyAll();
          });
      MutexLock lock(mu);
      dialled.push_back({peer, use, channel});
      changed.NotifyAll();
      return channel;
    };
    if (options.pause == WarmChannels::Options{}.pause) options.pause = milliseconds(0);
    channels = std::make_unique<WarmChannels>(std::move(options));
    channels->Start();
  }

  struct Dialled {
    Peer peer;
    Use use;
    std::weak_ptr<grpc::Channel> channel;
    steady_clock::time_point at = steady_clock::now();
  };

  size_t made() {
    MutexLock lock(mu);
    return dialled.size();
  }
  // Whether so many of the channels that were made exist and are connected.
  bool AreConnected(size_t count) {
    const auto end = steady_clock::now() + kPatience;
    while (true) {
      size_t ready = 0, seen = 0;
      std::shared_ptr<grpc::Channel> other;  // is not connected
      for (const auto& channel : Existing(&seen)) {
        if (channel->GetState(false) == GRPC_CHANNEL_READY) {
          ++ready;
        } else {
          other = channel;
        }
      }
      if (ready == count || steady_clock::now() > end) return ready == count;
      // Nobody tells of a connection that breaks: a look in between finds it.
      const auto soon = std::chrono::system_clock::now() + milliseconds(100);
      if (other != nullptr) {
        (void)other->WaitForStateChange(other->GetState(false), soon);
        continue;
      }
      MutexLock lock(mu);
      (void)changed.WaitUntil(
          mu, steady_clock::now() + milliseconds(100),
          [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return dialled.size() != seen; });
    }
  }
  // Whether the first `count` that were made are gone.
  bool AreGone(size_t count) {
    MutexLock lock(mu);
    return changed.WaitUntil(
        mu, steady_clock::now() + kPatience, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
          return std::all_of(dialled.begin(), dialled.begin() + static_cast<long>(count),
                             [](const Dialled& each) { return each.channel.expired(); });
        });
  }

  // Those that exist; how many were made.
  std::vector<std::shared_ptr<grpc::Channel>> Existing(size_t* all) {
    MutexLock lock(mu);
    *all = dialled.size();
    std::vector<std::shared_ptr<grpc::Channel>> existing;
    for (const Dialled& each : dialled) {
      if (auto channel = each.channel.lock()) existing.push_back(std::move(channel));
    }
    return existing;
  }

  Mutex mu;
  Condition changed;  // one was made, or is gone
  std::vector<Dialled> dialled ABSL_GUARDED_BY(mu);
  std::unique_ptr<WarmChannels> channels;  // last: its thread uses everything above
};

std::unique_ptr<RingPort> Port(uint16_t at = 0) {
  std::unique_ptr<RingPort> port;
  // A port that has just been left may be refused for a moment.
  for (const auto end = steady_clock::now() + kPatience;
       port == nullptr && steady_clock::now() < end;) {
    auto made = RingPort::Create({"127.0.0.1", at});
    if (made.ok()) port = *std::move(made);
  }
  REQUIRE(port != nullptr);
  return port;
}

Peer To(const std::string& name, const std::unique_ptr<RingPort>& port) {
  return {name, {"127.0.0.1", port->port()}};
}

}  // namespace

TEST_CASE("WarmChannels: each peer has one for each use, used once") {
  const auto b = Port(), c = Port();
  Warmed warm;
  warm.channels->Keep({To("b", b), To("c", c)});
  REQUIRE(warm.AreConnected(6));
  const auto link = warm.channels->Take(To("b", b), Use::kLink);
  const auto pulse = warm.channels->Take(To("b", b), Use::kPulse);
  REQUIRE(link != nullptr);
  REQUIRE(pulse != nullptr);
  CHECK(link != pulse);
  CHECK(warm.channels->Take(To("c", c), Use::kState) != nullptr);
  CHECK(link->GetState(false) == GRPC_CHANNEL_READY);
  CHECK(warm.channels->Take(To("b", b), Use::kLink) == nullptr);
  // Another worker at that address, or this one elsewhere, is somebody else.
  CHECK(warm.channels->Take(To("d", c), Use::kLink) == nullptr);
  CHECK(warm.channels->Take(To("c", b), Use::kLink) == nullptr);
  CHECK(warm.made() == 6);
  // What was taken is made anew when the next generation says so, and what is there stays.
  warm.channels->Keep({To("c", c), To("b", b)});
  REQUIRE(warm.AreConnected(8));  // two of them are in our hands
  CHECK(warm.made() == 9);
  CHECK(warm.channels->Take(To("b", b), Use::kLink) != nullptr);
  CHECK(warm.channels->Take(To("c", c), Use::kPulse) != nullptr);
}

TEST_CASE("WarmChannels: those that the ring does not name any more are closed") {
  const auto b = Port(), c = Port(), d = Port();
  Warmed warm;
  warm.channels->Keep({To("b", b), To("c", c)});
  REQUIRE(warm.AreConnected(6));
  warm.channels->Keep({To("d", d)});
  CHECK(warm.AreGone(6));
  REQUIRE(warm.AreConnected(3));
  CHECK(warm.channels->Take(To("c", c), Use::kLink) == nullptr);
  CHECK(warm.channels->Take(To("d", d), Use::kLink) != nullptr);
  warm.channels->Stop();
  CHECK(warm.AreGone(9));
  CHECK(warm.channels->Take(To("d", d), Use::kPulse) == nullptr);
  warm.channels->Keep({To("b", b)});
  CHECK(warm.made() == 9);
}

TEST_CASE("WarmChannels: to two peers at most") {
  const testing::LogLines log;
  const auto b = Port(), c = Port(), d = Port();
  Warmed warm;
  warm.channels->Keep({To("b", b), To("c", c), To("d", d)});
  REQUIRE(log.Await("\n"));  // all that are kept are there
  CHECK(log.text().ends_with("next successors are connected already: b c\n"));
  CHECK(warm.channels->Take(To("d", d), Use::kLink) == nullptr);
  CHECK(warm.made() == 6);
}

TEST_CASE("WarmChannels: one that broke is not handed out, and is connected again") {
  auto b = Port();
  const Peer peer = To("b", b);
  Warmed warm;
  warm.channels->Keep({peer});
  REQUIRE(warm.AreConnected(3));
  b.reset();
  REQUIRE(warm.AreConnected(0));
  CHECK(warm.channels->Take(peer, Use::kLink) == nullptr);
  b = Port(peer.address.port);
  REQUIRE(warm.AreConnected(2));
  CHECK(warm.channels->Take(peer, Use::kPulse) != nullptr);
  CHECK(warm.made() == 3);
}

TEST_CASE("WarmChannels: a peer that is not there does not keep the others from being made") {
  auto b = Port();
  const auto c = Port();
  const Peer gone = To("b", b);
  b.reset();
  Warmed warm;
  warm.channels->Keep({gone, To("c", c)});
  REQUIRE(warm.AreConnected(3));
  CHECK(warm.channels->Take(gone, Use::kLink) == nullptr);
  CHECK(warm.channels->Take(To("c", c), Use::kLink) != nullptr);
}

TEST_CASE("WarmChannels: new credentials make new ones") {
  const auto b = Port();
  Mutex mu;
  std::string issue = "first";
  Warmed warm({.issue =
                   [&]() {
                     MutexLock lock(mu);
                     return issue;
                   },
               .settling = milliseconds(0)});
  warm.channels->Keep({To("b", b)});
  REQUIRE(warm.AreConnected(3));
  {
    MutexLock lock(mu);
    issue = "second";
  }
  CHECK(warm.AreGone(3));
  REQUIRE(warm.AreConnected(3));
  CHECK(warm.made() == 6);
}

TEST_CASE("WarmChannels: nothing is made in the pause behind Keep") {
  constexpr milliseconds kPause{50};
  const auto b = Port();
  Warmed warm({.pause = kPause});
  const auto told = steady_clock::now();
  warm.channels->Keep({To("b", b)});
  REQUIRE(warm.AreConnected(3));
  const MutexLock lock(warm.mu);
  CHECK(warm.dialled[0].at - told >= kPause);
}

TEST_CASE("WarmChannels: what is wanted before it is made is not made any more") {
  const auto b = Port();
  const auto here = std::this_thread::get_id();
  std::promise<void> open;  // the way of thread "ring-warm" to its first channel
  Warmed warm({.issue = [&, opened = open.get_future().share()]() {
    if (std::this_thread::get_id() != here) opened.wait();
    return std::string();
  }});
  warm.channels->Keep({To("b", b)});
  CHECK(warm.channels->Take(To("b", b), Use::kLink) == nullptr);
  CHECK(warm.made() == 0);
  open.set_value();
  REQUIRE(warm.AreConnected(2));
  const MutexLock lock(warm.mu);
  REQUIRE(warm.dialled.size() == 2);
  CHECK(warm.dialled[0].use == Use::kPulse);
  CHECK(warm.dialled[1].use == Use::kState);
}

TEST_CASE("RingPort: the next ring uses the connections that are ready, and each of them once") {
  const spdlog::level::level_enum level = spdlog::get_level();
  spdlog::set_level(spdlog::level::debug);
  const testing::LogLines log;
  const auto connections = [&log](const std::string& how) {
    const std::string text = log.text();
    size_t count = 0;
    for (size_t at = text.find(how); at != std::string::npos; at = text.find(how, at + 1)) ++count;
    return count;
  };
  constexpr char kReady[] = ": was ready", kMade[] = ": is made";
  PortRing ring(3);
  const auto keep = [&ring](uint32_t member, const std::vector<uint32_t>& others) {
    std::vector<Successor> next;
    for (const uint32_t other : others) {
      next.push_back(
          {PortRing::Name(other), "127.0.0.1:" + std::to_string(ring.port(other)->port())});
    }
    ring.port(member)->KeepReady(next);
  };
  const auto form = [&ring](const std::vector<uint32_t>& order, GenerationId generation) {
    std::vector<std::unique_ptr<PeerWatch>> watches;
    for (size_t rank = 0; rank < order.size(); ++rank) {
      auto watch = ring.port(order[rank])->Watch(ring.WatchOf(order, rank, generation));
      if (!watch.ok()) FAIL(Message(watch.status()));
      watches.push_back(*std::move(watch));
    }
    auto links = ring.Connect(order, generation);
    if (!links.ok()) FAIL(Message(links.status()));
  };
  form({0, 1, 2}, {1, 1});
  CHECK(connections(kReady) == 0);
  CHECK(connections(kMade) == 6);
  keep(0, {1, 2});
  keep(2, {0, 1});
  REQUIRE(log.Await("next successors are connected already: worker-1 worker-2",
                    "next successors are connected already: worker-0 worker-1"));
  // Member 1 is lost, and one fetches a state.
  const auto state_channel = [&ring](const std::string& holder) {
    return ring.port(0)->TakeStateChannel(
        {holder, "127.0.0.1:" + std::to_string(ring.port(2)->port())});
  };
  CHECK(state_channel("worker-1") == nullptr);
  CHECK(state_channel("worker-2") != nullptr);
  CHECK(state_channel("worker-2") == nullptr);
  form({0, 2}, {1, 2});
  CHECK(connections(kReady) == 5);
  CHECK(connections(kMade) == 8);
  form({0, 2}, {1, 3});
  CHECK(connections(kReady) == 5);
  CHECK(connections(kMade) == 12);
  spdlog::set_level(level);
}

}  // namespace ringmaster::ring
