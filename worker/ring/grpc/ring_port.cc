#include "worker/ring/grpc/ring_port.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

#include "common/rpc/rpc_status.h"
#include "ringmaster/v1/ring.grpc.pb.h"
#include "worker/ring/grpc/channel_options.h"
#include "worker/ring/grpc/grpc_link.h"
#include "worker/ring/grpc/hello.h"
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

class RingService : public v1::Ring::WithRawCallbackMethod_Link<v1::Ring::Service> {
 public:
  explicit RingService(StreamTable* table) : table_(table) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Link(
      grpc::CallbackServerContext* context) override {
    StatusOr<v1::LinkHello> hello = ReadHello(*context);
    if (!hello.ok()) return IncomingStream::Refused(ToGrpc(hello.status(), kReasonHello));
    const std::shared_ptr<IncomingStream> stream = IncomingStream::Open(*std::move(hello));
    table_->Add(stream);
    return stream.get();
  }

 private:
  StreamTable* const table_;
};

class GrpcRingPort : public RingPort {
 public:
  explicit GrpcRingPort(const PortOptions& options)
      : services_(options.services), table_(options), service_(&table_) {}
  ~GrpcRingPort() override { GrpcRingPort::Stop(); }

  Status Listen(const Address& listen);
  [[nodiscard]] uint16_t port() const override { return port_; }
  [[nodiscard]] StatusOr<std::unique_ptr<Link>> Connect(const LinkOptions& options,
                                                        TimePoint deadline) override;
  void Stop() override;

 private:
  void ExpireStreams();

  const std::vector<grpc::Service*> services_;
  StreamTable table_;
  RingService service_;
  Mutex mu_;
  Condition changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<grpc::Server> server_;
  uint16_t port_ = 0;
  std::jthread expirer_;  // "ring-port": refuses streams that waited too long
};

Status GrpcRingPort::Listen(const Address& listen) {
  EnableStandardServices();
  grpc::ServerBuilder builder;
  SetRingOptions(&builder);
  int bound = 0;
  builder.AddListeningPort(listen.ToString(), grpc::InsecureServerCredentials(), &bound);
  builder.RegisterService(&service_);
  for (grpc::Service* service : services_) builder.RegisterService(service);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || bound == 0) {
    return Error(absl::StatusCode::kUnavailable,
                 "cannot listen on {} for the ring: another process uses the port, or the address "
                 "is not of this host; choose another --listen, port 0 picks a free one",
                 listen.ToString());
  }
  // The empty name, for the whole server, is set already.
  server_->GetHealthCheckService()->SetServingStatus(v1::Ring::service_full_name(), true);
  port_ = static_cast<uint16_t>(bound);
  expirer_ = std::jthread([this]() { ExpireStreams(); });
  pthread_setname_np(expirer_.native_handle(), "ring-port");
  return absl::OkStatus();
}

void GrpcRingPort::ExpireStreams() {
  MutexLock lock(mu_);
  while (!stopping_) {
    const TimePoint now = std::chrono::steady_clock::now();
    // A stream that comes meanwhile is found at most a second late.
    const TimePoint tick = now + std::chrono::seconds(1);
    const TimePoint wake = std::min(table_.Expire(now).value_or(tick), tick);
    changed_.WaitUntil(mu_, wake, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopping_; });
  }
}

StatusOr<std::unique_ptr<Link>> GrpcRingPort::Connect(const LinkOptions& options,
                                                      TimePoint deadline) {
  LinkStreams streams;
  streams.self_name = options.self_name;
  streams.state = std::make_shared<LinkState>(
      options.successor_name.empty() ? options.successor_address : options.successor_name,
      options.predecessor_name);
  RING_RETURN_IF_ERROR(table_.Begin(options, streams.state, &streams.lease));

  v1::LinkHello hello;
  hello.set_protocol(kProtocolVersion);
  hello.set_job_id(options.job_id);
  hello.set_term(options.generation.term);
  hello.set_counter(options.generation.counter);
  hello.set_sender(options.self_name);
  hello.set_incarnation(options.self_incarnation);
  streams.outgoing = OutgoingStream::Open(options.successor_address, hello, streams.state);

  Status status;
  {
    const std::stop_callback on_stop(options.stop, [state = streams.state]() {
      state->Fail(absl::CancelledError("stopped while the ring was forming"));
    });
    status = streams.state->WaitJoined(deadline);
  }
  streams.incoming = table_.EndAccepting();
  if (status.ok()) return std::make_unique<GrpcLink>(std::move(streams));
  status = Annotate(status, fmt::format("ring of job {} generation {} at worker {}", options.job_id,
                                        options.generation.ToString(), options.self_name));
  streams.Cancel(status);
  streams.outgoing->Abort();
  streams.Close();
  return status;
}

void GrpcRingPort::Stop() {
  {
    MutexLock lock(mu_);
    if (std::exchange(stopping_, true)) return;
    changed_.NotifyAll();
  }
  table_.Stop(absl::CancelledError("the worker stops"));
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kShutdownLimit);
  if (expirer_.joinable()) expirer_.join();
}

}  // namespace

StatusOr<std::unique_ptr<RingPort>> RingPort::Create(const Address& listen, PortOptions options) {
  auto port = std::make_unique<GrpcRingPort>(options);
  RING_RETURN_IF_ERROR(port->Listen(listen));
  return std::unique_ptr<RingPort>(std::move(port));
}

}  // namespace ringmaster::ring
