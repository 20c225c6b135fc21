// Ring ports on loopback, one for each member, connected to a ring in one process. Not thread-safe.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/status.h"
#include "worker/ring/grpc/message.h"
#include "worker/ring/grpc/ring_port.h"

namespace ringmaster::ring {

// Of every generation in these tests.
inline constexpr char kTicket[] = "sixteen bytes...";

// How payloads go: as ports do by themselves, over TCP like those between hosts, or in one way on
// some edges and in the other on others.
enum class Payloads : uint8_t { kMemory, kTcp, kBoth };

class PortRing {
 public:
  explicit PortRing(uint32_t ports, PortOptions options = {},
                    Payloads payloads = Payloads::kMemory) {
    for (uint32_t i = 0; i < ports; ++i) {
      options.shares_memory =
          payloads == Payloads::kMemory || (payloads == Payloads::kBoth && i % 3 != 0);
      auto port = RingPort::Create({"127.0.0.1", 0}, options);
      if (port.ok()) ports_.push_back(*std::move(port));
    }
  }

  [[nodiscard]] RingPort* port(uint32_t member) { return ports_[member].get(); }

  [[nodiscard]] LinkOptions OptionsOf(const std::vector<uint32_t>& order, size_t rank,
                                      GenerationId generation) const {
    const uint32_t successor = order[(rank + 1) % order.size()];
    const uint32_t predecessor = order[(rank + order.size() - 1) % order.size()];
    LinkOptions options;
    options.job_id = "job-1";
    options.generation = generation;
    options.ticket = kTicket;
    options.successor_address = "127.0.0.1:" + std::to_string(ports_[successor]->port());
    options.successor_name = Name(successor);
    options.self_name = Name(order[rank]);
    options.self_incarnation = Name(order[rank]) + "-process";
    options.predecessor_name = Name(predecessor);
    options.predecessor_incarnation = Name(predecessor) + "-process";
    return options;
  }
  // Without content and callback; limits that no test reaches.
  [[nodiscard]] WatchOptions WatchOf(const std::vector<uint32_t>& order, size_t rank,
                                     GenerationId generation) const {
    WatchOptions options{OptionsOf(order, rank, generation)};
    options.limits.silence = options.limits.widest_silence = std::chrono::minutes(10);
    options.limits.connect = std::chrono::minutes(10);
    return options;
  }
  static std::string Name(uint32_t member) { return "worker-" + std::to_string(member); }

  // The links of a ring in the order of `order`; a null link for a ring of one.
  [[nodiscard]] StatusOr<std::vector<std::unique_ptr<Link>>> Connect(
      const std::vector<uint32_t>& order, GenerationId generation) {
    std::vector<StatusOr<std::unique_ptr<Link>>> outcomes(order.size());
    if (order.size() == 1) {
      outcomes[0] = std::unique_ptr<Link>();
    } else {
      std::vector<std::jthread> threads;
      for (size_t rank = 0; rank < order.size(); ++rank) {
        threads.emplace_back([&, rank]() {
          outcomes[rank] = ports_[order[rank]]->Connect(
              OptionsOf(order, rank, generation),
              std::chrono::steady_clock::now() + std::chrono::seconds(20));
        });
      }
    }
    std::vector<std::unique_ptr<Link>> links;
    for (auto& outcome : outcomes) {
      if (!outcome.ok()) return outcome.status();
      links.push_back(*std::move(outcome));
    }
    return links;
  }

 private:
  std::vector<std::unique_ptr<RingPort>> ports_;
};

// The generation of rings that have but one.
inline constexpr GenerationId kGeneration{3, 5};

// How a member of a PortRing says who it is.
[[nodiscard]] inline v1::LinkHello HelloOf(uint32_t sender, GenerationId generation = kGeneration) {
  RingPlace place;
  place.job_id = "job-1";
  place.generation = generation;
  place.ticket = kTicket;
  place.self_name = PortRing::Name(sender);
  place.self_incarnation = place.self_name + "-process";
  return HelloOf(place);
}

}  // namespace ringmaster::ring
