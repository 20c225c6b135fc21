// The PeerWatch over gRPC: two pulse streams and the thread that beats. Made by RingPort.
#pragma once

#include <memory>
#include <thread>

#include "worker/ring/grpc/ending_streams.h"
#include "worker/ring/grpc/outgoing_pulse.h"
#include "worker/ring/grpc/peer_watch.h"
#include "worker/ring/grpc/watch_state.h"

namespace ringmaster::ring {

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
