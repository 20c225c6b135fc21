// Connections to those who may be this worker's next successors, made and authenticated before they
// are needed, so that a regroup waits for no handshake: to each of them one for a Link, one for a
// Pulse and one for the fetch of a state. Each is used once: who takes one has it alone, as if just
// made. Owned by RingPort, which is told by each generation whom to keep. Thread-safe; thread
// "ring-warm" makes them, one after the other, and waits for them: with gRPC's `poll`
// (event_queue.h) a connection that nobody waits for answers no ping, and is ended. It opens no
// call.
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "common/net/address.h"

namespace ringmaster::ring {

class WarmChannels {
 public:
  enum class Use : uint8_t { kLink, kPulse, kState };
  struct Peer {
    std::string name;
    Address address;
    bool operator==(const Peer& other) const {
      return name == other.name && address.host == other.address.host &&
             address.port == other.address.port;
    }
  };
  struct Options {
    // Begins one; on thread "ring-warm".
    std::function<std::shared_ptr<grpc::Channel>(const Peer&, Use)> dial;
    // Changes with the credentials that `dial` uses: what was made with others is made anew. Asked
    // often.
    std::function<std::string()> issue = []() { return std::string(); };
    // From Keep until the first is made: a generation that has just formed has better things to do.
    std::chrono::milliseconds pause{500};
    // From new credentials until channels are made with them: gRPC reads them once a second.
    std::chrono::milliseconds settling{2'000};
  };
  // More peers than these are not kept to.
  static constexpr size_t kMostPeers = 2;

  explicit WarmChannels(Options options) : options_(std::move(options)) {}
  ~WarmChannels() { Stop(); }

  void Start();
  // Channels to these, to be made and kept; those to others are closed.
  void Keep(std::vector<Peer> peers);
  // A connected one, which is not kept any more, nor made again before the next Keep; null: none is
  // ready.
  [[nodiscard]] std::shared_ptr<grpc::Channel> Take(const Peer& peer, Use use);
  // Closes all. Idempotent.
  void Stop();

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Kept {
    Peer peer;
    Use use;
    std::shared_ptr<grpc::Channel> channel;  // null: it is to be made
  };

  void Run();
  // Until there is something to do; false: Stop.
  [[nodiscard]] bool Rest();
  void DropOld();
  // Begins the next one, when none is just being made.
  void DialNext();
  // Waits for all of them, for a moment.
  void Watch();
  // Says once that all are ready.
  void Tell();

  const Options options_;
  std::string issue_;  // thread "ring-warm"

  Mutex mu_;
  Condition changed_;
  std::vector<Kept> kept_ ABSL_GUARDED_BY(mu_);
  TimePoint due_ ABSL_GUARDED_BY(mu_);      // nothing is made before
  bool told_ ABSL_GUARDED_BY(mu_) = false;  // that all are ready
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::jthread thread_;  // "ring-warm"; last: it uses everything above
};

}  // namespace ringmaster::ring
