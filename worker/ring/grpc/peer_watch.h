// Whether a worker's two neighbours in a ring live: a Beat every 50 ms to both and from both, on a
// connection beside the Link's, and an accusation when one falls silent or its stream breaks.
// Made by RingPort::Watch, which starts it; ended by its destructor, which says goodbye and waits
// for nobody. Thread "ring-pulse" sends, judges and calls out; thread-safe. It moves no frame, and
// it evicts nobody: whom it accuses is the coordinator's to judge.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "common/ids.h"
#include "worker/ring/beat_monitor.h"
#include "worker/ring/grpc/ending_streams.h"
#include "worker/ring/grpc/message.h"
#include "worker/ring/grpc/pulse_streams.h"
#include "worker/ring/grpc/watch_state.h"

namespace ringmaster::ring {

struct WatchOptions : RingPlace {
  // On thread "ring-pulse", at every beat; empty: beats without content.
  std::function<Pulse()> content;
  // On thread "ring-pulse", at most once for each peer. Must not block, nor destroy the PeerWatch.
  std::function<void(const std::string& peer, const std::string& reason)> suspect;
  WatchLimits limits;
};

class PeerWatch {
 public:
  // No call of `suspect` or `content` is under way, and none will come, when it returns.
  virtual ~PeerWatch() = default;
};

// Over gRPC: two pulse streams and the thread that beats. Made by RingPort.
struct WatchStreams {
  std::shared_ptr<WatchState> state;
  std::shared_ptr<OutgoingPulse> outgoing;
  std::shared_ptr<const void> lease;  // of the membership, from the StreamTable
  std::shared_ptr<EndingStreams> ending;
};

class GrpcPeerWatch : public PeerWatch {
 public:
  GrpcPeerWatch(WatchOptions options, WatchStreams streams);
  ~GrpcPeerWatch() override;

 private:
  void Run();
  void Send(uint64_t number);

  const WatchOptions options_;
  const WatchStreams streams_;
  std::jthread thread_;  // "ring-pulse"; last: it uses everything above
};

}  // namespace ringmaster::ring
