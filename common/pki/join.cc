#include "common/pki/join.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "common/pki/authority.h"
#include "common/pki/tls_stream.h"
#include "common/text.h"

namespace ringmaster::pki {
namespace {

using std::chrono::steady_clock;

constexpr int kMostCode = static_cast<int>(absl::StatusCode::kUnauthenticated);

Status Denied(const std::string& message) {
  return Error(absl::StatusCode::kUnauthenticated, "{}", message);
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

std::string Shown(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST] = "?";
  (void)getnameinfo(address, length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  return host;
}

StatusOr<OwnedFile> ConnectTo(const addrinfo& place, steady_clock::time_point until) {
  const std::string shown = Shown(place.ai_addr, place.ai_addrlen);
  const auto failed = [&shown](int error) {
    return Error(absl::StatusCode::kUnavailable, "{}: {}", shown, std::strerror(error));
  };
  OwnedFile file(socket(place.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (file.get() < 0) return failed(errno);
  // Greeting and handshake are two writes, of which the second would wait for the first one's ACK.
  const int at_once = 1;
  (void)setsockopt(file.get(), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once));
  if (connect(file.get(), place.ai_addr, place.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return failed(errno);
    RING_RETURN_IF_ERROR(AwaitSocket(file.get(), POLLOUT, until, shown));
    int error = 0;
    socklen_t length = sizeof(error);
    if (getsockopt(file.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    if (error != 0) return failed(error);
  }
  return file;
}

// At one address after the other; each has an equal part of the time that is left.
StatusOr<OwnedFile> ConnectToAny(const Address& address, steady_clock::time_point deadline) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(address.port);
  const int error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &list);
  const std::unique_ptr<addrinfo, FreeAddresses> found(list);
  const auto unreachable = [&address](const std::string& why) {
    return Error(absl::StatusCode::kUnavailable,
                 "cannot reach the coordinator at {} ({}): does it run, does it listen on that "
                 "address (--listen), and is there a firewall between?",
                 address.ToString(), why);
  };
  if (error != 0) return unreachable(gai_strerror(error));
  int left = 0;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) ++left;
  std::string why;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next, --left) {
    const steady_clock::time_point now = steady_clock::now();
    StatusOr<OwnedFile> file = ConnectTo(*one, now + (deadline - now) / left);
    if (file.ok()) return file;
    why += (why.empty() ? "" : "; ") + Message(file.status());
  }
  return unreachable(why);
}

Status Greet(const OwnedFile& socket, steady_clock::time_point deadline) {
  RING_RETURN_IF_ERROR(AwaitSocket(socket.get(), POLLOUT, deadline, "the greeting"));
  const size_t size = std::strlen(kJoinGreeting);  // the first bytes: there is room for them
  if (send(socket.get(), kJoinGreeting, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) {
    return Error(absl::StatusCode::kUnavailable, "the connection ended");
  }
  return absl::OkStatus();
}

// Whether it is the token's cluster that has answered.
StatusOr<Identity> CheckServer(const JoinToken& token, const std::vector<Certificate>& chain,
                               Time now) {
  const std::string where = token.coordinator.ToString();
  if (chain.empty()) return Denied(where + " has no certificate");
  const auto pinned = std::find_if(chain.begin(), chain.end(), [&token](const Certificate& one) {
    return one.is_authority() && one.KeyHash() == token.authority;
  });
  if (pinned == chain.end()) {
    const auto shown = std::find_if(chain.begin(), chain.end(),
                                    [](const Certificate& one) { return one.is_authority(); });
    return Denied(fmt::format(
        "{} is not the cluster of this token: its authority is {}, the token's is {}. It is "
        "another "
        "cluster, one with a new authority, or somebody between; the secret was not sent. Take a "
        "new token of `ringctl token create`, and compare the address",
        where, shown == chain.end() ? "not shown" : ShortHash(shown->KeyHash()),
        ShortHash(token.authority)));
  }
  const StatusOr<Identity> server = Verify(chain.front(), {*pinned}, Side::kServer, now);
  if (!server.ok()) {
    return Denied(fmt::format("{}: {}; the secret was not sent", where, Message(server.status())));
  }
  if (server->kind != Kind::kCoordinator) {
    return Denied(
        fmt::format("{} is {}, no coordinator; the secret was not sent", where, ToUri(*server)));
  }
  return server;
}

StatusOr<v1::JoinReply> Ask(TlsStream& stream, const JoinToken& token, const std::string& name,
                            const Key& key) {
  v1::JoinRequest request;
  RING_ASSIGN_OR_RETURN(*request.mutable_signing_request(), key.SigningRequest());
  request.set_token_id(token.id);
  request.set_secret(token.secret.text());
  request.set_name(name);
  std::string bytes = request.SerializeAsString();
  Wipe(request.mutable_secret());
  const Status sent = stream.Write(bytes);
  Wipe(&bytes);
  RING_RETURN_IF_ERROR(sent);
  RING_ASSIGN_OR_RETURN(const Secret answer, stream.Read());
  v1::JoinReply reply;
  if (!reply.ParseFromString(answer.text())) {
    return Error(absl::StatusCode::kUnavailable, "its answer is none of this protocol");
  }
  return reply;
}

Status RefusalIn(const v1::JoinReply& reply) {
  if (reply.code() == 0) return absl::OkStatus();
  const bool known = reply.code() > 0 && reply.code() <= kMostCode;
  const std::string reason = OneLine(reply.reason(), kMaxNameText);
  return Error(known ? static_cast<absl::StatusCode>(reply.code()) : absl::StatusCode::kUnknown,
               "the coordinator refused: {}{}", OneLine(reply.message()),
               reason.empty() ? "" : fmt::format(" ({})", reason));
}

// By how much the clocks of the two differ, where that is why.
std::string ClocksOf(const v1::IssuedCertificate& message, Time now) {
  // From year 1 to 9999, as timestamp.proto says: else it is no time, and a difference may
  // overflow.
  const int64_t theirs = message.now().seconds();
  if (!message.has_now() || theirs < -62'135'596'800 || theirs > 253'402'300'799) return "";
  const int64_t seconds = theirs - now.time_since_epoch().count();
  if (std::abs(seconds) < std::chrono::seconds(kBackdating).count()) return "";
  return fmt::format("; this host's clock differs from the coordinator's by {} min: it is {}",
                     (std::abs(seconds) + 30) / 60, seconds > 0 ? "behind" : "ahead");
}

}  // namespace

StatusOr<Issued> CheckIssued(const v1::IssuedCertificate& message, const Key& key, Time now) {
  const auto bad = [&](const std::string& why) {
    return Denied("what the coordinator sent cannot be used: " + why + ClocksOf(message, now));
  };
  auto certificate = Certificate::FromDer(message.certificate());
  if (!certificate.ok()) return bad(Message(certificate.status()));
  if (certificate->KeyHash() != key.Hash()) return bad("the certificate is of another key");
  std::vector<Certificate> authorities;
  for (const std::string& der : message.authorities()) {
    auto authority = Certificate::FromDer(der);
    if (!authority.ok()) return bad(Message(authority.status()));
    if (!authority->is_authority()) return bad("an authority is none");
    authorities.push_back(*std::move(authority));
  }
  if (authorities.empty()) return bad("there is no authority");
  auto identity = Verify(*certificate, {authorities.front()}, Side::kClient, now);
  if (!identity.ok()) return bad(Message(identity.status()));
  return Issued{*std::move(certificate), std::move(authorities), *std::move(identity)};
}

StatusOr<Issued> Join(const JoinToken& token, const std::string& name, const Key& key, Time now,
                      steady_clock::time_point deadline) {
  const std::string where = token.coordinator.ToString();
  RING_ASSIGN_OR_RETURN(OwnedFile socket, ConnectToAny(token.coordinator, deadline));
  if (const Status greeted = Greet(socket, deadline); !greeted.ok()) {
    return Annotate(greeted, where);
  }
  auto stream = TlsStream::Connect(std::move(socket), deadline);
  if (!stream.ok()) {
    return Annotate(stream.status(), where + " does not answer as a coordinator with TLS does");
  }
  RING_ASSIGN_OR_RETURN(const Identity server, CheckServer(token, (*stream)->PeerChain(), now));
  const auto reply = Ask(**stream, token, name, key);
  if (!reply.ok()) return Annotate(reply.status(), where);
  RING_RETURN_IF_ERROR(RefusalIn(*reply));
  RING_ASSIGN_OR_RETURN(Issued issued, CheckIssued(reply->issued(), key, now));
  if (issued.authorities.front().KeyHash() != token.authority) {
    return Denied(
        fmt::format("{} sent a certificate of another authority than the token's", where));
  }
  if (issued.identity.cluster != server.cluster) {
    return Denied(fmt::format("{} sent a certificate for {}, but is of cluster {}", where,
                              ToUri(issued.identity), server.cluster));
  }
  return issued;
}

Status ServeJoin(OwnedFile socket, const Credentials& own, steady_clock::time_point deadline,
                 const JoinHandler& handler) {
  sockaddr_storage peer = {};
  socklen_t length = sizeof(peer);
  std::string address = "?";
  if (getpeername(socket.get(), reinterpret_cast<sockaddr*>(&peer), &length) == 0) {
    address = Shown(reinterpret_cast<const sockaddr*>(&peer), length);
  }
  auto stream = TlsStream::Accept(std::move(socket), own, deadline);
  if (!stream.ok()) return Annotate(stream.status(), address);
  v1::JoinRequest request;
  {
    const auto message = (*stream)->Read();
    if (!message.ok()) return Annotate(message.status(), address);
    if (!request.ParseFromString(message->text())) {
      return InvalidArgument("{}: no JoinRequest", address);
    }
  }
  const v1::JoinReply reply = handler(request, address);
  Wipe(request.mutable_secret());
  RING_RETURN_IF_ERROR(Annotate((*stream)->Write(reply.SerializeAsString()), address));
  (*stream)->Close();
  return absl::OkStatus();
}

}  // namespace ringmaster::pki
