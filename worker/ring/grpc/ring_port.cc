#include "worker/ring/grpc/ring_port.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include "common/rpc/rpc_status.h"
#include "common/text.h"
#include "ringmaster/v1/ring.grpc.pb.h"
#include "worker/ring/grpc/channel_options.h"
#include "worker/ring/grpc/ending_streams.h"
#include "worker/ring/grpc/event_queue.h"
#include "worker/ring/grpc/grpc_link.h"
#include "worker/ring/grpc/message.h"
#include "worker/ring/grpc/peer_watch.h"
#include "worker/ring/grpc/stream_table.h"
#include "worker/ring/grpc/warm_channels.h"

namespace ringmaster::ring {
namespace {

constexpr std::chrono::seconds kShutdownLimit{2};
constexpr std::chrono::seconds kAbortedLimit{5};  // until a call that was aborted is over

// Both are settings of the process, and are read when a server is built.
void EnableStandardServices() {
  static std::once_flag once;
  std::call_once(once, []() {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

using Peer = WarmChannels::Peer;
using Use = WarmChannels::Use;

// Others say where a successor is: the coordinator, and to that the successor.
template <typename Options>
StatusOr<Peer> SuccessorOf(const Options& options) {
  StatusOr<Address> address = ParsePeerAddress(options.successor_address, "ring_address");
  if (address.ok()) return Peer{options.successor_name, *std::move(address)};
  return WithNeighbour(
      options.successor_name,
      Annotate(address.status(),
               "successor " + OneLine(options.successor_name, kMaxNameText) + " of the ring"));
}

using LinkTable = StreamTable<IncomingStream>;
using PulseTable = StreamTable<IncomingPulse>;

// Of the server that has everything but links.
class RingService : public v1::Ring::CallbackService {
 public:
  explicit RingService(PulseTable* pulses) : pulses_(pulses) {}

  grpc::ServerBidiReactor<v1::RawFrame, v1::RawFrame>* Link(
      grpc::CallbackServerContext* /*context*/) override {
    return new Elsewhere();
  }

  grpc::ServerBidiReactor<v1::Beat, v1::Beat>* Pulse(
      grpc::CallbackServerContext* context) override {
    StatusOr<v1::LinkHello> hello = ReadHello(*context);
    if (!hello.ok()) return IncomingPulse::Refused(ToGrpc(hello.status(), kReasonHello));
    const std::shared_ptr<IncomingPulse> stream = IncomingPulse::Open(*std::move(hello));
    pulses_->Add(stream);
    return stream.get();
  }

 private:
  // Tells a link that did not come through the door of links where that is.
  class Elsewhere : public grpc::ServerBidiReactor<v1::RawFrame, v1::RawFrame> {
   public:
    Elsewhere() {
      const Status status = InvalidArgument(
          "a link has a connection of its own, which begins with `CONNECT {} HTTP/1.1` (gRPC's "
          "channel argument grpc.http_connect_server)",
          kLinkDoor);
      Finish(ToGrpc(status, kReasonHello));
    }
    void OnDone() override { delete this; }
  };

  PulseTable* const pulses_;
};

class GrpcRingPort : public RingPort {
 public:
  explicit GrpcRingPort(const PortOptions& options)
      : options_(options),
        links_(options),
        pulses_(options),
        service_(&pulses_),
        warm_({.dial = [this](const Peer& peer, Use use) { return Dial(peer, use); },
               .issue = [this]() { return options_.dialer.Issue(); }}) {}
  ~GrpcRingPort() override { GrpcRingPort::Stop(); }

  Status Listen(const Address& listen);
  [[nodiscard]] uint16_t port() const override { return port_; }
  [[nodiscard]] StatusOr<std::unique_ptr<Link>> Connect(const LinkOptions& options,
                                                        TimePoint deadline) override;
  [[nodiscard]] StatusOr<std::unique_ptr<PeerWatch>> Watch(const WatchOptions& options) override;
  void KeepReady(const std::vector<Successor>& next) override;
  [[nodiscard]] std::shared_ptr<grpc::Channel> TakeStateChannel(const Successor& holder) override;
  void Stop() override;

 private:
  Status ServeAll();
  Status ServeLinks();
  void TendStreams();
  // Whoever is there has to be the successor, by its certificate, where there is TLS.
  [[nodiscard]] std::shared_ptr<grpc::Channel> Dial(const Peer& peer, Use use) const {
    return options_.dialer.Dial(peer.address, {pki::Kind::kWorker, peer.name}, ArgumentsFor(use));
  }
  [[nodiscard]] grpc::ChannelArguments ArgumentsFor(Use use) const;
  // Null: none is ready.
  [[nodiscard]] std::shared_ptr<grpc::Channel> Ready(const Peer& peer, Use use);
  [[nodiscard]] std::shared_ptr<grpc::Channel> ChannelTo(const Peer& peer, Use use) {
    const std::shared_ptr<grpc::Channel> ready = Ready(peer, use);
    return ready != nullptr ? ready : Dial(peer, use);
  }
  std::shared_ptr<LinkEdges> CurrentEdges() {
    MutexLock lock(mu_);
    return edges_.lock();
  }

  const PortOptions options_;
  const std::shared_ptr<EndingStreams> ending_ = std::make_shared<EndingStreams>();
  LinkTable links_;
  PulseTable pulses_;
  RingService service_;
  grpc::AsyncGenericService link_service_;
  std::atomic<bool> stopping_ = false;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_, link_server_;
  std::unique_ptr<EventQueue> events_;  // of link_server_
  uint16_t port_ = 0;
  Mutex mu_;
  std::weak_ptr<LinkEdges> edges_ ABSL_GUARDED_BY(mu_);  // of the newest link
  WarmChannels warm_;
  std::jthread tender_;  // "ring-port": refuses streams that waited too long, aborts old ones
};

Status GrpcRingPort::Listen(const Address& listen) {
  EnableStandardServices();
  auto acceptor = Acceptor::Listen(listen, RingConnections());
  if (!acceptor.ok()) {
    return Error(absl::StatusCode::kUnavailable,
                 "cannot listen on {} for the ring: {} (does another process use the port, or is "
                 "the address not of this host?); choose another --listen, port 0 picks a free one",
                 listen.ToString(), Message(acceptor.status()));
  }
  acceptor_ = *std::move(acceptor);
  RING_RETURN_IF_ERROR(ServeAll());
  RING_RETURN_IF_ERROR(ServeLinks());
  port_ = acceptor_->port();
  acceptor_->Start();
  warm_.Start();
  tender_ = std::jthread([this]() { TendStreams(); });
  pthread_setname_np(tender_.native_handle(), "ring-port");
  return absl::OkStatus();
}

Status GrpcRingPort::ServeAll() {
  grpc::ServerBuilder builder;
  SetRingOptions(&builder);
  acceptor_->AddTo(&builder, options_.security);
  builder.RegisterService(&service_);
  for (grpc::Service* service : options_.services) builder.RegisterService(service);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return Internal("gRPC does not start a server");
  // The empty name, for the whole server, is set already.
  server_->GetHealthCheckService()->SetServingStatus(v1::Ring::service_full_name(), true);
  return absl::OkStatus();
}

// Links have a server of their own, so that nobody but who waits for their frames reads their
// connections (event_queue.h).
Status GrpcRingPort::ServeLinks() {
  grpc::ServerBuilder builder;
  SetRingOptions(&builder);
  acceptor_->AddDoor(kLinkDoor, &builder, options_.security);
  builder.RegisterAsyncGenericService(&link_service_);
  auto queue = builder.AddCompletionQueue();
  link_server_ = builder.BuildAndStart();
  if (link_server_ == nullptr) return Internal("gRPC does not start a server of links");
  events_ = std::make_unique<EventQueue>(std::move(queue));
  IncomingStream::Serve(
      &link_service_, events_.get(),
      [this](const std::shared_ptr<IncomingStream>& stream) { links_.Add(stream); });
  return absl::OkStatus();
}

void GrpcRingPort::TendStreams() {
  TimePoint wake;
  do {
    const TimePoint now = std::chrono::steady_clock::now();
    // A stream that comes meanwhile is found at most a second late.
    const TimePoint tick = now + std::chrono::seconds(1);
    wake = std::min({links_.Expire(now).value_or(tick), pulses_.Expire(now).value_or(tick), tick});
  } while (ending_->Tend(wake));
}

StatusOr<std::unique_ptr<Link>> GrpcRingPort::Connect(const LinkOptions& options,
                                                      TimePoint deadline) {
  RING_ASSIGN_OR_RETURN(const Peer successor, SuccessorOf(options));
  LinkParts parts;
  parts.self_name = options.self_name;
  parts.events = events_.get();
  parts.edges = std::make_shared<LinkEdges>(
      events_.get(),
      options.successor_name.empty() ? options.successor_address : options.successor_name,
      options.predecessor_name, options.largest_payload, options_.shares_memory);
  parts.ending = ending_;
  parts.goodbye_limit = options_.goodbye_limit;
  parts.cancel_limit = options_.cancel_limit;
  RING_RETURN_IF_ERROR(links_.Begin(options, parts.edges, &parts.lease));
  {
    MutexLock lock(mu_);
    edges_ = parts.edges;
  }

  parts.edges->Open(ChannelTo(successor, Use::kLink), successor.address.ToString(),
                    HelloOf(options));

  Status status;
  {
    const std::stop_callback on_stop(options.stop, [edges = parts.edges]() {
      edges->Fail(absl::CancelledError("stopped while the ring was forming"));
    });
    status = parts.edges->WaitJoined(deadline);
  }
  parts.incoming = links_.EndAccepting();
  if (status.ok()) return std::make_unique<GrpcLink>(std::move(parts));
  status = Annotate(status, fmt::format("ring of job {} generation {} at worker {}", options.job_id,
                                        options.generation.ToString(), options.self_name));
  parts.Cancel(status);
  parts.Close();
  return status;
}

StatusOr<std::unique_ptr<PeerWatch>> GrpcRingPort::Watch(const WatchOptions& options) {
  RING_ASSIGN_OR_RETURN(const Peer successor, SuccessorOf(options));
  WatchStreams streams;
  streams.state = std::make_shared<WatchState>(options.successor_name, options.predecessor_name,
                                               options.limits);
  streams.ending = ending_;
  RING_RETURN_IF_ERROR(pulses_.Begin(options, streams.state, &streams.lease));
  streams.outgoing =
      OutgoingPulse::Open(ChannelTo(successor, Use::kPulse), HelloOf(options), streams.state);
  return std::make_unique<GrpcPeerWatch>(options, std::move(streams));
}

grpc::ChannelArguments GrpcRingPort::ArgumentsFor(Use use) const {
  switch (use) {
    case Use::kLink:
      return LinkChannelArguments();
    case Use::kPulse:
      return PulseChannelArguments();
    case Use::kState:
      break;
  }
  return options_.state_channel;
}

std::shared_ptr<grpc::Channel> GrpcRingPort::Ready(const Peer& peer, Use use) {
  std::shared_ptr<grpc::Channel> ready = warm_.Take(peer, use);
  constexpr const char* kUses[] = {"link", "pulse", "state"};
  spdlog::debug("connection to {} at {} for a {}: {}", peer.name, peer.address.ToString(),
                kUses[static_cast<size_t>(use)], ready != nullptr ? "was ready" : "is made");
  return ready;
}

std::shared_ptr<grpc::Channel> GrpcRingPort::TakeStateChannel(const Successor& holder) {
  const StatusOr<Address> address = ParsePeerAddress(holder.address, "ring_address");
  return address.ok() ? Ready({holder.name, *address}, Use::kState) : nullptr;
}

void GrpcRingPort::KeepReady(const std::vector<Successor>& next) {
  std::vector<Peer> peers;
  for (const Successor& successor : next) {
    StatusOr<Address> address = ParsePeerAddress(successor.address, "ring_address");
    if (address.ok()) peers.push_back({successor.name, *std::move(address)});
  }
  warm_.Keep(std::move(peers));
}

void GrpcRingPort::Stop() {
  if (stopping_.exchange(true)) return;
  warm_.Stop();
  const Status stops = absl::CancelledError("the worker stops");
  links_.Stop(stops);
  pulses_.Stop(stops);
  ending_->Stop();
  if (tender_.joinable()) tender_.join();
  if (acceptor_ != nullptr) acceptor_->Stop();
  // The call to the successor of a link that still exists.
  if (const auto edges = CurrentEdges(); edges != nullptr) {
    edges->Close(LinkEdges::Queued::kDrop);
    if (!edges->WaitDone(std::chrono::steady_clock::now() + options_.cancel_limit)) {
      edges->Abort();
      (void)edges->WaitDone(std::chrono::steady_clock::now() + kAbortedLimit);
    }
  }
  const auto until = std::chrono::system_clock::now() + kShutdownLimit;
  if (link_server_ != nullptr) link_server_->Shutdown(until);
  if (events_ != nullptr) events_->Stop();
  if (server_ != nullptr) server_->Shutdown(until);
}

}  // namespace

StatusOr<std::unique_ptr<RingPort>> RingPort::Create(const Address& listen, PortOptions options) {
  auto port = std::make_unique<GrpcRingPort>(options);
  RING_RETURN_IF_ERROR(port->Listen(listen));
  return std::unique_ptr<RingPort>(std::move(port));
}

}  // namespace ringmaster::ring
