#include "worker/ring/grpc/ring_port.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include "common/rpc/acceptor.h"
#include "common/rpc/rpc_status.h"
#include "common/text.h"
#include "ringmaster/v1/ring.grpc.pb.h"
#include "worker/ring/grpc/channel_options.h"
#include "worker/ring/grpc/ending_streams.h"
#include "worker/ring/grpc/grpc_link.h"
#include "worker/ring/grpc/hello.h"
#include "worker/ring/grpc/peer_watch.h"
#include "worker/ring/grpc/stream_table.h"

namespace ringmaster::ring {
namespace {

constexpr std::chrono::seconds kShutdownLimit{2};

// Both are settings of the process, and are read when a server is built.
void EnableStandardServices() {
  static std::once_flag once;
  std::call_once(once, []() {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

// Others say where a successor is: the coordinator, and to that the successor.
template <typename Options>
StatusOr<Address> SuccessorOf(const Options& options) {
  StatusOr<Address> address = ParsePeerAddress(options.successor_address, "ring_address");
  if (address.ok()) return address;
  return Annotate(address.status(),
                  "successor " + OneLine(options.successor_name, kMaxNameText) + " of the ring");
}

using LinkTable = StreamTable<IncomingStream>;
using PulseTable = StreamTable<IncomingPulse>;

class RingService : public v1::Ring::WithCallbackMethod_Pulse<
                        v1::Ring::WithRawCallbackMethod_Link<v1::Ring::Service>> {
 public:
  RingService(LinkTable* links, PulseTable* pulses) : links_(links), pulses_(pulses) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Link(
      grpc::CallbackServerContext* context) override {
    return Admit(*context, links_);
  }
  grpc::ServerBidiReactor<v1::Beat, v1::Beat>* Pulse(
      grpc::CallbackServerContext* context) override {
    return Admit(*context, pulses_);
  }

 private:
  template <typename Stream>
  static Stream* Admit(const grpc::CallbackServerContext& context, StreamTable<Stream>* table) {
    StatusOr<v1::LinkHello> hello = ReadHello(context);
    if (!hello.ok()) return Stream::Refused(ToGrpc(hello.status(), kReasonHello));
    const std::shared_ptr<Stream> stream = Stream::Open(*std::move(hello));
    table->Add(stream);
    return stream.get();
  }

  LinkTable* const links_;
  PulseTable* const pulses_;
};

class GrpcRingPort : public RingPort {
 public:
  explicit GrpcRingPort(const PortOptions& options)
      : options_(options), links_(options), pulses_(options), service_(&links_, &pulses_) {}
  ~GrpcRingPort() override { GrpcRingPort::Stop(); }

  Status Listen(const Address& listen);
  [[nodiscard]] uint16_t port() const override { return port_; }
  [[nodiscard]] StatusOr<std::unique_ptr<Link>> Connect(const LinkOptions& options,
                                                        TimePoint deadline) override;
  [[nodiscard]] StatusOr<std::unique_ptr<PeerWatch>> Watch(const WatchOptions& options) override;
  void Stop() override;

 private:
  void TendStreams();

  const PortOptions options_;
  const std::shared_ptr<EndingStreams> ending_ = std::make_shared<EndingStreams>();
  LinkTable links_;
  PulseTable pulses_;
  RingService service_;
  std::atomic<bool> stopping_ = false;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  uint16_t port_ = 0;
  std::jthread tender_;  // "ring-port": refuses streams that waited too long, aborts old ones
};

Status GrpcRingPort::Listen(const Address& listen) {
  EnableStandardServices();
  grpc::ServerBuilder builder;
  SetRingOptions(&builder);
  auto acceptor = Acceptor::Listen(listen, RingConnections());
  if (!acceptor.ok()) {
    return Error(absl::StatusCode::kUnavailable,
                 "cannot listen on {} for the ring: {} (does another process use the port, or is "
                 "the address not of this host?); choose another --listen, port 0 picks a free one",
                 listen.ToString(), Message(acceptor.status()));
  }
  acceptor_ = *std::move(acceptor);
  acceptor_->AddTo(&builder, grpc::InsecureServerCredentials());
  builder.RegisterService(&service_);
  for (grpc::Service* service : options_.services) builder.RegisterService(service);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return Internal("gRPC does not start a server");
  // The empty name, for the whole server, is set already.
  server_->GetHealthCheckService()->SetServingStatus(v1::Ring::service_full_name(), true);
  port_ = acceptor_->port();
  acceptor_->Start();
  tender_ = std::jthread([this]() { TendStreams(); });
  pthread_setname_np(tender_.native_handle(), "ring-port");
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
  RING_ASSIGN_OR_RETURN(const Address successor, SuccessorOf(options));
  LinkStreams streams;
  streams.self_name = options.self_name;
  streams.state = std::make_shared<LinkState>(
      options.successor_name.empty() ? options.successor_address : options.successor_name,
      options.predecessor_name, options.largest_payload);
  streams.ending = ending_;
  streams.goodbye_limit = options_.goodbye_limit;
  streams.cancel_limit = options_.cancel_limit;
  const Membership membership{.job_id = options.job_id,
                              .generation = options.generation,
                              .predecessor_name = options.predecessor_name,
                              .predecessor_incarnation = options.predecessor_incarnation};
  RING_RETURN_IF_ERROR(links_.Begin(membership, streams.state, &streams.lease));

  const v1::LinkHello hello =
      MakeHello(options.job_id, options.generation, options.self_name, options.self_incarnation);
  streams.outgoing = OutgoingStream::Open(successor, hello, streams.state);

  Status status;
  {
    const std::stop_callback on_stop(options.stop, [state = streams.state]() {
      state->Fail(absl::CancelledError("stopped while the ring was forming"));
    });
    status = streams.state->WaitJoined(deadline);
  }
  streams.incoming = links_.EndAccepting();
  if (status.ok()) return std::make_unique<GrpcLink>(std::move(streams));
  status = Annotate(status, fmt::format("ring of job {} generation {} at worker {}", options.job_id,
                                        options.generation.ToString(), options.self_name));
  streams.Cancel(status);
  streams.Close();
  return status;
}

StatusOr<std::unique_ptr<PeerWatch>> GrpcRingPort::Watch(const WatchOptions& options) {
  RING_ASSIGN_OR_RETURN(const Address successor, SuccessorOf(options));
  WatchStreams streams;
  streams.state = std::make_shared<WatchState>(options.successor_name, options.predecessor_name,
                                               options.limits);
  streams.ending = ending_;
  const Membership membership{.job_id = options.job_id,
                              .generation = options.generation,
                              .predecessor_name = options.predecessor_name,
                              .predecessor_incarnation = options.predecessor_incarnation};
  RING_RETURN_IF_ERROR(pulses_.Begin(membership, streams.state, &streams.lease));
  const v1::LinkHello hello =
      MakeHello(options.job_id, options.generation, options.self_name, options.self_incarnation);
  streams.outgoing = OutgoingPulse::Open(successor, hello, streams.state);
  return std::make_unique<GrpcPeerWatch>(options, std::move(streams));
}

void GrpcRingPort::Stop() {
  if (stopping_.exchange(true)) return;
  const Status stops = absl::CancelledError("the worker stops");
  links_.Stop(stops);
  pulses_.Stop(stops);
  ending_->Stop();
  if (tender_.joinable()) tender_.join();
  if (acceptor_ != nullptr) acceptor_->Stop();
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kShutdownLimit);
}

}  // namespace

StatusOr<std::unique_ptr<RingPort>> RingPort::Create(const Address& listen, PortOptions options) {
  auto port = std::make_unique<GrpcRingPort>(options);
  RING_RETURN_IF_ERROR(port->Listen(listen));
  return std::unique_ptr<RingPort>(std::move(port));
}

}  // namespace ringmaster::ring
