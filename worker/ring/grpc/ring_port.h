// The ring's place on the network: one gRPC server for the life of the daemon, which accepts the
// predecessor's stream, and the client stream to the successor. The only gRPC of the data plane.
// Thread-safe. It hands out Links; streams that are malformed or not current never get that far:
// they end with an error of their own and nothing else.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/impl/codegen/service_type.h>
#include <grpcpp/support/channel_arguments.h>

#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/net/address.h"
#include "common/rpc/acceptor.h"
#include "common/rpc/channel.h"
#include "common/status.h"
#include "worker/ring/grpc/message.h"
#include "worker/ring/grpc/peer_watch.h"
#include "worker/ring/link.h"

namespace ringmaster::ring {

struct LinkOptions : RingPlace {
  std::stop_token stop;  // ends Connect with CANCELLED
  // Of a frame of the predecessor's; a larger one ends the link. With kWindowFrames this bounds
  // what a predecessor can make this worker hold.
  size_t largest_payload = size_t{3} << 20;
};

struct PortOptions {
  // Streams that came before this worker's Connect or Watch: how many wait, and how long. Longer
  // than a Connect does: the receiver may have to fetch the state first.
  size_t waiting_streams = 16;
  std::chrono::milliseconds waiting_limit{720'000};
  // How long a link that ended goes on until its successor has all its frames; after an error or
  // Cancel, the frame that is under way. Nobody waits for it but Stop.
  std::chrono::milliseconds goodbye_limit{2'000};
  std::chrono::milliseconds cancel_limit{500};
  // How it takes connections, and makes those to successors.
  ServerSecurity security;
  Dialer dialer;
  grpc::ChannelArguments state_channel;  // of connections to fetch a state over
  // Whether frames from and to processes of this host go through memory.
  bool shares_memory = true;
  // Offered on the same port; they outlive it.
  std::vector<grpc::Service*> services;
};

// Who may be the successor of a generation to come.
struct Successor {
  std::string name, address;  // HOST:PORT
};

class RingPort {
 public:
  // Listens at once; port 0 picks one. Offers grpc.health.v1 and reflection. UNAVAILABLE: the
  // address cannot be bound, by name.
  [[nodiscard]] static StatusOr<std::unique_ptr<RingPort>> Create(const Address& listen,
                                                                  PortOptions options = {});
  virtual ~RingPort() = default;
  [[nodiscard]] virtual uint16_t port() const = 0;
  // Connects to the successor, unless a connection is ready (KeepReady), and waits for the
  // predecessor, whichever comes first; both carry job and generation. An older Link of this port
  // must be gone: FAILED_PRECONDITION. DEADLINE_EXCEEDED names who is missing; CANCELLED: `stop` or
  // Stop(); else why the successor refused. INVALID_ARGUMENT: the successor's address is none of a
  // worker (ParsePeerAddress).
  [[nodiscard]] virtual StatusOr<std::unique_ptr<Link>> Connect(
      const LinkOptions& options, std::chrono::steady_clock::time_point deadline) = 0;
  // Watches both neighbours of a generation from now on, before, beside and after its Link. An
  // older PeerWatch of this port must be gone: FAILED_PRECONDITION. CANCELLED: after Stop(), which
  // also ends a watch that exists, without an accusation.
  [[nodiscard]] virtual StatusOr<std::unique_ptr<PeerWatch>> Watch(const WatchOptions& options) = 0;
  // Has connections ready to these (two at most), made in the background, for the Connects and
  // Watches to come, and closes those to others. Addresses that are none of a worker are left out.
  virtual void KeepReady(const std::vector<Successor>& next) = 0;
  // A connection of those, to fetch a state of `holder` over; null: none is ready.
  [[nodiscard]] virtual std::shared_ptr<grpc::Channel> TakeStateChannel(
      const Successor& holder) = 0;
  // Refuses new streams, ends those that exist; a Link returns CANCELLED from then on. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace ringmaster::ring
