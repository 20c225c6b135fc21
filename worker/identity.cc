#include "worker/identity.h"

#include <grpcpp/security/auth_metadata_processor.h>
#include <netdb.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>

#include "common/build_id.h"
#include "common/files.h"
#include "common/image/decode.h"
#include "common/pki/credential_folder.h"
#include "common/pki/join.h"
#include "common/pki/key.h"
#include "common/rpc/renewal.h"

namespace ringmaster::worker {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kJoinAttempt{10'000};
constexpr std::chrono::milliseconds kJoinPause{500};
constexpr char kRemedy[] =
    "start it once with --join TOKEN; `ringctl token create --role worker` on the coordinator's "
    "host prints one";

bool MayComeLater(const Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kDeadlineExceeded;
}

// Which token it joined with last, so that one that stays in its settings is used once.
std::string JoinedFile(const Flags& flags) { return flags.state_dir + "/joined"; }

bool IsUsed(const Flags& flags, const pki::JoinToken& token) {
  const auto id = ReadNamedFile("token", JoinedFile(flags));
  return id.ok() && *id == token.id;
}

// Again and again while nobody answers.
Status UntilReached(std::chrono::milliseconds limit, const char* what,
                    const std::function<Status(steady_clock::time_point deadline)>& attempt) {
  const steady_clock::time_point until = steady_clock::now() + limit;
  while (true) {
    const Status status = attempt(std::min(until, steady_clock::now() + kJoinAttempt));
    if (status.ok()) return status;
    if (!MayComeLater(status) || steady_clock::now() + kJoinPause >= until) {
      return Annotate(status, what);
    }
    spdlog::warn("{}: not yet: {}", what, Message(status));
    std::this_thread::sleep_for(kJoinPause);
  }
}

Status JoinCluster(const Flags& flags, const pki::JoinToken& token, const std::string& folder,
                   std::chrono::milliseconds limit) {
  RING_ASSIGN_OR_RETURN(const pki::Key key, pki::Key::Generate());
  return UntilReached(limit, "--join", [&](auto deadline) -> Status {
    RING_ASSIGN_OR_RETURN(const pki::Issued issued,
                          pki::Join(token, flags.name, key, pki::SystemTime(), deadline));
    if (issued.identity.kind != pki::Kind::kWorker) {
      return FailedPrecondition("the token makes {}, which is no worker; {}",
                                pki::ToUri(issued.identity), kRemedy);
    }
    spdlog::info("joined as {}", pki::ToUri(issued.identity));
    if (!issued.clocks.empty()) spdlog::warn("{}", issued.clocks);
    RING_RETURN_IF_ERROR(
        pki::WriteCredentials(folder, key, issued.certificate, issued.authorities));
    return WriteDurably(JoinedFile(flags), token.id);
  });
}

// One that ended, also long ago, which nobody but the coordinator takes any more.
Status RenewEnded(const Flags& flags, const std::string& folder, const pki::Credentials& own,
                  std::chrono::milliseconds limit) {
  spdlog::info("the certificate of {} ended at {}: it is renewed", pki::ToUri(own.identity),
               pki::Shown(own.not_after()));
  return UntilReached(limit, "it cannot be renewed", [&](auto deadline) {
    grpc::ClientContext call;
    call.set_deadline(std::chrono::system_clock::now() +
                      (deadline - std::chrono::steady_clock::now()));
    const auto issued =
        RenewCredentials({folder, flags.coordinator, nullptr}, own, pki::SystemTime(), &call);
    if (issued.ok() && !issued->clocks.empty()) spdlog::warn("{}", issued->clocks);
    return issued.status();
  });
}

// The address of this host that packets to `peer` would leave from.
StatusOr<std::string> AddressTowards(const Address& peer) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(peer.port);
  if (const int error = getaddrinfo(peer.host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return Error(absl::StatusCode::kUnavailable, "{}: {}", peer.host, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> places(found, &freeaddrinfo);
  for (const addrinfo* place = found; place != nullptr; place = place->ai_next) {
    // Of a datagram socket connect() sends nothing: it finds a route.
    const OwnedFile file(socket(place->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own = {};
    socklen_t length = sizeof(own);
    char host[NI_MAXHOST];
    if (file.get() >= 0 && connect(file.get(), place->ai_addr, place->ai_addrlen) == 0 &&
        getsockname(file.get(), reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&own), length, host, sizeof(host), nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      return std::string(host);
    }
  }
  return Error(absl::StatusCode::kUnavailable, "no address of this host reaches {}",
               peer.ToString());
}

Status SettleListen(Flags* flags) {
  if (!flags->listen.host.empty()) return absl::OkStatus();
  flags->listen = {"127.0.0.1", 0};
  if (!IsLoopback(flags->coordinator.host)) {
    RING_ASSIGN_OR_RETURN(flags->listen.host, AddressTowards(flags->coordinator));
    const std::string interface = InterfaceOf(flags->listen.host);
    spdlog::info("other workers reach this one at {}{}, as it reaches the coordinator (--listen)",
                 flags->listen.host, interface.empty() ? "" : ", interface " + interface);
  }
  if (flags->advertise.empty()) flags->advertise = flags->listen.host;
  return absl::OkStatus();
}

Status SettleName(const pki::Identity& identity, Flags* flags) {
  if (identity.kind != pki::Kind::kWorker) {
    return FailedPrecondition("its certificate is that of {}, which is no worker",
                              pki::ToUri(identity));
  }
  if (flags->name_given && flags->name != identity.name) {
    return FailedPrecondition(
        "--name {}: its certificate says that it is {}; leave --name out, or remove {}/pki and "
        "join anew with a token for that name",
        flags->name, identity.name, flags->state_dir);
  }
  flags->name = identity.name;
  return absl::OkStatus();
}

// A worker's port is for workers of its cluster; for everybody else of it there is the health
// service. Which worker may have what, tickets and the ring's generation say.
class WorkersAlone : public grpc::AuthMetadataProcessor {
 public:
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* connection,
                       OutputMetadata*, OutputMetadata*) override {
    const auto identity = PeerIdentity(*connection);
    if (!identity.ok() || !*identity) {
      return {grpc::StatusCode::UNAUTHENTICATED, "this port takes certificates of its cluster"};
    }
    if ((*identity)->kind == pki::Kind::kWorker) return grpc::Status::OK;
    const auto path = metadata.find(":path");
    if (path != metadata.end() && path->second.starts_with("/grpc.health.v1.Health/")) {
      return grpc::Status::OK;
    }
    return {grpc::StatusCode::PERMISSION_DENIED,
            pki::ToUri(**identity) + " is no worker; this port is for the ring"};
  }
};

}  // namespace

v1::NumericsClass NumericsOf(const Backend& backend, uint32_t threads_per_core) {
  v1::NumericsClass numerics = backend.numerics_class(threads_per_core);
  numerics.set_compute_id(ComputeId());
  for (const auto& [library, version] : image::LibraryVersions()) {
    (*numerics.mutable_libraries())[library] = version;
  }
  return numerics;
}

StatusOr<Security> SecurityOf(Flags* flags, std::chrono::milliseconds limit) {
  RING_RETURN_IF_ERROR(SettleListen(flags));
  Security security;
  const std::string folder = flags->state_dir + "/pki";
  // Before there is a key in memory.
  std::error_code error;  // what cannot be looked at is said below
  const bool keys = !flags->join.empty() || std::filesystem::exists(folder, error) || error;
  if (keys && !flags->debuggable) RING_RETURN_IF_ERROR(pki::ForbidDumps());
  StatusOr<pki::Credentials> own = pki::LoadCredentials(folder);
  const bool none = own.status().code() == absl::StatusCode::kNotFound;
  if (!flags->join.empty()) {
    RING_ASSIGN_OR_RETURN(const pki::JoinToken token, pki::ParseToken(flags->join));
    pki::Wipe(&flags->join);
    if (none || !IsUsed(*flags, token)) {
      const Status joined = JoinCluster(*flags, token, folder, limit);
      if (!joined.ok() && !pki::SelfCheck(folder, pki::SystemTime(), kRemedy).ok()) return joined;
      if (!joined.ok()) spdlog::warn("{}; it goes on as it was", Message(joined));
      own = pki::LoadCredentials(folder);
    } else if (own.ok()) {
      spdlog::info("the token is not used: this worker is {} already", pki::ToUri(own->identity));
    }
  } else if (none) {
    if (IsLoopback(flags->listen.host) && IsLoopback(flags->coordinator.host)) return security;
    return FailedPrecondition(
        "this worker has no certificate, and {} is not on this host: {}",
        IsLoopback(flags->listen.host) ? flags->coordinator.ToString() : flags->listen.ToString(),
        kRemedy);
  }
  if (own.ok() && pki::SystemTime() > own->not_after()) {
    const Status renewed = RenewEnded(*flags, folder, *own, limit);
    if (!renewed.ok()) {
      RING_RETURN_IF_ERROR(
          pki::SelfCheck(folder, pki::SystemTime(), Message(renewed) + "; " + kRemedy));
    }
  }
  RING_RETURN_IF_ERROR(pki::SelfCheck(folder, pki::SystemTime(), kRemedy));
  RING_RETURN_IF_ERROR(SettleName(own->identity, flags));
  RING_ASSIGN_OR_RETURN(security.server.tls, ServerTls(folder));
  security.server.tls->SetAuthMetadataProcessor(std::make_shared<WorkersAlone>());
  security.folder = folder;
  security.dialer = Dialer(folder);
  return security;
}

}  // namespace ringmaster::worker
