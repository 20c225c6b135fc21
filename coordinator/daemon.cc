#include "coordinator/daemon.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <utility>

#include "common/pki/join.h"
#include "common/pki/key.h"
#include "common/rpc/credentials.h"
#include "common/ticket.h"

namespace ringmaster::coordinator {
namespace {

constexpr int kMaxMessageBytes = (4 << 20) + (64 << 10);  // a piece is at most 1 MiB
constexpr int kMaxStreamsPerConnection = 1'024;
constexpr int kMaxMetadataBytes = 8 << 10;
constexpr size_t kMaxTransportBytes = 1 << 30;  // gRPC's own, of all connections
constexpr std::chrono::seconds kShutdownLimit{2};
constexpr size_t kMaxDiskTasks = 16'384;

// Of the tickets' generator.
std::string RandomBytes(size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += RandomTicket();
  return text.substr(0, bytes);
}

UnixTime UnixNow() {
  return std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
}

std::chrono::seconds Seconds(std::chrono::milliseconds duration) {
  return std::chrono::duration_cast<std::chrono::seconds>(duration);
}

pki::Identity Named(const std::string& cluster, const IdentityName& identity) {
  const bool worker = identity.kind == IdentityKind::kWorker;
  return {cluster, worker ? pki::Kind::kWorker : pki::Kind::kUser, identity.name};
}

StatusOr<PeerCertificate> ClientOf(const std::optional<pki::Identity>& identity,
                                   const pki::Certificate& leaf) {
  if (!identity || identity->kind == pki::Kind::kCoordinator) {
    return Error(absl::StatusCode::kUnauthenticated, "a coordinator is no client");
  }
  const bool worker = identity->kind == pki::Kind::kWorker;
  PeerCertificate certificate;
  certificate.identity = {worker ? IdentityKind::kWorker : IdentityKind::kUser, identity->name};
  certificate.issued = leaf.not_before() + pki::kBackdating;
  certificate.expires = leaf.not_after();
  return certificate;
}

// gRPC has verified it.
StatusOr<PeerCertificate> PeerCertificateOf(const grpc::AuthContext& connection) {
  RING_ASSIGN_OR_RETURN(const std::optional<pki::Identity> identity, PeerIdentity(connection));
  RING_ASSIGN_OR_RETURN(const pki::Certificate leaf, PeerLeaf(connection));
  return ClientOf(identity, leaf);
}

v1::ListAuthoritiesResponse ListAuthorities(const pki::Authorities& authorities) {
  v1::ListAuthoritiesResponse response;
  const auto add = [&](const pki::Authority& authority) {
    v1::CertificateAuthority& one = *response.add_authorities();
    one.set_id(pki::ShortHash(authority.key().Hash()));
    pki::Time until = authority.certificate().not_after();
    if (authorities.rotation) {
      const bool next = authority.key().Hash() == authorities.newest().key().Hash();
      if (!next) until = std::min(until, authorities.rotation->ends);
      const pki::Time from = authorities.rotation->signs;
      const bool later = response.authorities_size() > 1 && next;
      if (later) one.mutable_signs_from()->set_seconds(from.time_since_epoch().count());
    }
    one.mutable_trusted_until()->set_seconds(until.time_since_epoch().count());
  };
  add(authorities.signer);
  if (authorities.other) add(*authorities.other);
  response.mutable_authorities(0)->set_signs(true);
  return response;
}

// Peers may ping as often as they like, and one that does not answer is dropped. A client that has
// renewed its certificate in time also connects with it in time: none keeps a connection for new
// calls for longer than a quarter of a certificate's life (and a tenth of that, gRPC's jitter),
// which ends in the third behind the renewal. Calls that are open then go on, OpenCalls ends them.
void SetConnections(std::chrono::milliseconds certificate_life, grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                             static_cast<int>((certificate_life / 4).count()));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 100);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetResourceQuota(grpc::ResourceQuota("ringmaster").Resize(kMaxTransportBytes));
}

}  // namespace

StatusOr<Daemon::Opened> Daemon::Open(const Flags& flags) {
  if (!flags.debuggable) RING_RETURN_IF_ERROR(pki::ForbidDumps());
  Opened opened;
  RING_ASSIGN_OR_RETURN(opened.folder, DataFolder::Lock(flags.data_dir));
  RING_ASSIGN_OR_RETURN(opened.data_secret, opened.folder->Secret());
  RING_ASSIGN_OR_RETURN(opened.store, SqliteStore::Open(opened.folder->database()));
  RING_ASSIGN_OR_RETURN(opened.logs, LogFolder::Open({opened.folder->logs()}));
  RING_ASSIGN_OR_RETURN(const std::vector<RemovedJob> removed, opened.store->LoadRemoved());
  for (const RemovedJob& job : removed) {  // what a crash left of them
    const Status gone = opened.logs->Remove(job.job_id);
    if (!gone.ok()) spdlog::warn("job={} {}", job.job_id, Message(gone));
  }
  RING_ASSIGN_OR_RETURN(pki::AuthorityFolder authority,
                        pki::AuthorityFolder::Open(
                            opened.folder->pki(), pki::SystemTime(),
                            {Seconds(flags.certificate_life), Seconds(flags.authority_overlap)}));
  opened.authority = std::make_unique<pki::AuthorityFolder>(std::move(authority));
  return opened;
}

StatusOr<std::unique_ptr<Daemon>> Daemon::Create(const Flags& flags) {
  if (!flags.data_root.empty() && !std::filesystem::is_directory(flags.data_root)) {
    return FailedPrecondition("--data-root {} is not a folder", flags.data_root);
  }
  RING_ASSIGN_OR_RETURN(Opened opened, Open(flags));
  std::unique_ptr<Daemon> daemon(new Daemon(flags, std::move(opened)));
  RING_RETURN_IF_ERROR(daemon->control_.Restore());
  RING_RETURN_IF_ERROR(daemon->access_.Restore());
  for (const std::string& job : daemon->log_folder_->Jobs()) {
    daemon->board_.NoteLogLines(job, daemon->log_folder_->Lost(job));
  }
  daemon->disk_.Start();
  daemon->logs_.Start();
  daemon->data_files_.Start();
  daemon->joins_.Start();
  RING_RETURN_IF_ERROR(daemon->Listen(flags));
  daemon->control_.Start();  // what came meanwhile waits for it
  return daemon;
}

Daemon::Daemon(const Flags& flags, Opened opened)
    : folder_(std::move(opened.folder)),
      store_(std::move(opened.store)),
      checkpoints_(folder_->checkpoints(), flags.checkpoint_quota),
      log_folder_(std::move(opened.logs)),
      calls_(CallHands()),
      disk_({"disk", kMaxDiskTasks, std::chrono::seconds(1), nullptr}),
      logs_({"logs", kMaxDiskTasks, std::chrono::seconds(1), nullptr}),
      log_intakes_({*log_folder_, logs_, board_, sessions_}),
      control_(flags.options,
               {store_.get(), &checkpoints_, &disk_, &board_, &sessions_, &uploads_, &benches_,
                opened.data_secret, [this](const std::string& job) { RemoveLog(job); }}),
      jobs_(control_, board_, disk_,
            {*log_folder_, logs_, board_, flags.follow_quiet, flags.follow_longest}, flags.data_dir,
            calls_),
      fleet_({control_, checkpoints_, disk_, sessions_, uploads_}, sessions_, log_intakes_, calls_),
      bench_(control_, benches_, calls_),
      authority_(std::move(opened.authority)),
      gate_(MakeGate()),
      access_(AccessHands(flags)),
      joins_([this]() { return authority_->Servers(pki::SystemTime()); },
             [this](const v1::JoinRequest& request, const std::string& key_sha256,
                    const std::string& address, std::function<void(const v1::JoinReply&)> done) {
               access_.Join(request, key_sha256, address, std::move(done));
             }),
      data_root_(flags.data_root),
      data_files_(
          {.state_dir = folder_->path(),
           .admit = [this](const grpc::AuthContext& connection, const v1::DataAsker& asker) {
             return AdmitToData(connection, asker);
           }}) {}

std::shared_ptr<Gate> Daemon::MakeGate() {
  Gate::Hands hands;
  hands.identities = &identities_;
  hands.certificate_of = &PeerCertificateOf;
  hands.on_refusal = [this](const v1::AuditEntry& refused, UnixTime now) {
    access_.NoteRefusal(refused, now);
  };
  hands.now = &UnixNow;
  return std::make_shared<Gate>(std::move(hands));
}

// Without TLS they are root, its own user and members of its socket's group: administrators.
Passage Daemon::Identify(const grpc::AuthContext& connection) const {
  const StatusOr<std::optional<pki::Identity>> identity = PeerIdentity(connection);
  if (!identity.ok() || *identity) return gate_->Identify(connection);
  Passage passage;
  passage.caller.role = v1::ROLE_ADMIN;
  return passage;
}

OpenCalls::Hands Daemon::CallHands() {
  OpenCalls::Hands hands;
  hands.caller_of = [this](grpc::CallbackServerContext* context) {
    return Identify(*context->auth_context());
  };
  hands.on_refusal = [this](const Passage& refused, const std::string& path) {
    gate_->NoteRefusal(refused, path);
  };
  hands.now = &UnixNow;
  return hands;
}

AccessService::Hands Daemon::AccessHands(const Flags& flags) {
  AccessService::Hands hands;
  hands.store = &store_->access();
  hands.identities = &identities_;
  hands.run = [this](size_t bytes, std::function<void()> task) {
    return control_.Run(bytes, std::move(task));
  };
  hands.calls = &calls_;
  hands.certificate_life = Seconds(flags.certificate_life);
  hands.authority = SigningAuthority(hands.certificate_life);
  hands.random_bytes = RandomBytes;
  hands.now = &UnixNow;
  hands.on_revoked = [this](const IdentityName& revoked) { calls_.Cut(revoked, "it was revoked"); };
  return hands;
}

Authority Daemon::SigningAuthority(std::chrono::seconds life) const {
  Authority authority;
  authority.check = [](const std::string& signing_request) {
    return pki::KeyHashOfRequest(signing_request).status();
  };
  authority.sign = [this, life](const std::string& signing_request, const IdentityName& identity,
                                UnixSeconds now) -> StatusOr<v1::IssuedCertificate> {
    const pki::Identity named = Named(authority_->cluster(), identity);
    const pki::Authorities authorities = authority_->At(pki::SystemTime());
    RING_ASSIGN_OR_RETURN(const pki::Certificate certificate,
                          authorities.signer.Issue(signing_request, named, life, now));
    v1::IssuedCertificate issued;
    issued.set_certificate(certificate.ToDer());
    for (const pki::Certificate& one : authorities.trusted()) issued.add_authorities(one.ToDer());
    issued.set_identity(pki::ToUri(named));
    issued.mutable_now()->set_seconds(pki::SystemTime().time_since_epoch().count());
    return issued;
  };
  authority.shown = [this](const v1::JoinRequest& request) -> StatusOr<PeerCertificate> {
    const pki::Time now = pki::SystemTime();
    RING_ASSIGN_OR_RETURN(const pki::Certificate leaf,
                          pki::CheckRenewal(request, authority_->At(now).trusted(), now));
    RING_ASSIGN_OR_RETURN(const pki::Identity identity, pki::IdentityOf(leaf));
    if (identity.cluster == authority_->cluster()) return ClientOf(identity, leaf);
    return Error(absl::StatusCode::kUnauthenticated, "{} is of another cluster than {}",
                 pki::ToUri(identity), authority_->cluster());
  };
  authority.list = [this] { return ListAuthorities(authority_->At(pki::SystemTime())); };
  authority.rotate = [this](UnixSeconds last_end) {
    return authority_->Rotate(pki::SystemTime(), last_end);
  };
  authority.token_line = [this](const std::string& id, const std::string& secret) {
    pki::JoinToken token;
    token.coordinator = reached_at_;
    token.authority = authority_->At(pki::SystemTime()).newest().key().Hash();
    token.id = id;
    token.secret = pki::Secret(secret);
    return pki::Format(token).text();
  };
  authority.uri = [this](const IdentityName& identity) {
    return pki::ToUri(Named(authority_->cluster(), identity));
  };
  return authority;
}

void Daemon::RemoveLog(const std::string& job) {
  const bool posted = logs_.Post([this, job] {
    const Status status = log_folder_->Remove(job);
    if (!status.ok()) spdlog::warn("job={} {}", job, Message(status));
  });
  if (!posted) spdlog::warn("job={} log not removed: the logs queue is full", job);
}

void Daemon::Tend() {
  calls_.CutEnded(*identities_.Get(), UnixNow());
  const Status renewed = authority_->Tend(pki::SystemTime());
  if (const std::string change = authority_->TakeChange(); !change.empty()) {
    spdlog::info("authorities: {}", change);
    access_.NoteDone("authority", change);
  }
  if (renewed == std::exchange(trouble_, renewed) || renewed.ok()) return;
  spdlog::error("the coordinator's certificate cannot be renewed: {}", Message(renewed));
}

StatusOr<data_files::Place> Daemon::AdmitToData(const grpc::AuthContext& connection,
                                                const v1::DataAsker& asker) const {
  const auto holder = sessions_.FindByTicket(asker.ticket(), Identify(connection).caller.identity);
  if (!holder || !holder->open) {
    return Error(absl::StatusCode::kPermissionDenied,
                 "data are given to attached workers alone: the ticket that came with the request "
                 "is that of no session that is open");
  }
  if (!data_root_.empty()) return data_files::Place{data_root_, asker.path()};
  return Error(absl::StatusCode::kNotFound, "it serves no datasets: it has no --data-root");
}

Daemon::~Daemon() { Stop(); }

// Beside TCP. Its own socket is a convenience that a folder with too long a path does without.
Status Daemon::ListenLocally(const Flags& flags) {
  if (const Status own = acceptor_->ListenAt(folder_->socket(), std::nullopt); !own.ok()) {
    spdlog::warn("cannot listen at {}: {}; --socket names another place", folder_->socket(),
                 Message(own));
  }
  if (flags.socket.empty()) return absl::OkStatus();
  std::optional<gid_t> group;
  if (!flags.socket_group.empty()) {
    const StatusOr<gid_t> found = GroupNamed(flags.socket_group);
    if (!found.ok()) return FailedPrecondition("--socket-group: {}", Message(found.status()));
    group = *found;
  }
  const Status listening = acceptor_->ListenAt(flags.socket, group);
  if (listening.ok()) return listening;
  return Error(absl::StatusCode::kUnavailable, "--socket {}: cannot listen there: {}", flags.socket,
               Message(listening));
}

Status Daemon::Listen(const Flags& flags) {
  const Address& listen = flags.listen;
  AcceptorOptions connections = flags.connections;
  connections.instead =
      flags.socket_group.empty()
          ? "run this as that user"
          : fmt::format("members of group {} connect to unix:{}", flags.socket_group, flags.socket);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  SetConnections(flags.certificate_life, builder);
  auto acceptor = Acceptor::Listen(listen, connections);
  if (!acceptor.ok()) {
    return Error(absl::StatusCode::kUnavailable,
                 "--listen {}: cannot listen there: {} (is the port in use, or the address not of "
                 "this host?); choose another one, or port 0 for any free port",
                 listen.ToString(), Message(acceptor.status()));
  }
  acceptor_ = *std::move(acceptor);
  RING_RETURN_IF_ERROR(ListenLocally(flags));
  reached_at_ = {flags.advertise.empty() ? listen.host : flags.advertise, acceptor_->port()};
  ServerSecurity security;
  RING_ASSIGN_OR_RETURN(security.tls, ServerTls(authority_->server()));
  security.tls->SetAuthMetadataProcessor(gate_);
  acceptor_->AddTo(&builder, security);
  acceptor_->SetGreeted(pki::kJoinGreeting,
                        [this](OwnedFile connection, const std::string& address) {
                          joins_.Take(std::move(connection), address);
                        });
  builder.RegisterService(&jobs_);
  builder.RegisterService(&fleet_);
  builder.RegisterService(&bench_);
  builder.RegisterService(&access_);
  builder.RegisterService(&data_files_);
  server_ = builder.BuildAndStart();
  if (!server_) return Internal("gRPC does not start a server");
  // The empty name, for the whole server, is set already: the process lives, and to restart it
  // would not help. Callers may ask for one service, too: jobs are not served while nothing can be
  // stored.
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  health->SetServingStatus(v1::Fleet::service_full_name(), true);
  board_.WatchStore([health](bool trouble) {
    health->SetServingStatus(v1::Jobs::service_full_name(), !trouble);
  });
  address_ = Address{listen.host, acceptor_->port()}.ToString();
  acceptor_->Start();
  return absl::OkStatus();
}

void Daemon::Stop() {
  // No more decisions first, so that streams that end now are not taken for lost workers; then the
  // streams, because a call that nobody finishes keeps Shutdown waiting.
  control_.Stop();
  const Refusal stopping = {Error(absl::StatusCode::kUnavailable, "the coordinator is stopping"),
                            "UNAVAILABLE"};
  sessions_.Close(stopping);
  uploads_.Close(stopping);
  benches_.Close(stopping);
  log_intakes_.Close();
  data_files_.Stop();
  board_.Close();
  if (acceptor_) acceptor_->Stop();
  joins_.Stop();
  if (server_) {
    server_->Shutdown(std::chrono::system_clock::now() + kShutdownLimit);
    server_->Wait();
    server_.reset();
  }
  disk_.Stop();
  logs_.Stop();
}

}  // namespace ringmaster::coordinator
