#include "common/pki/join.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "common/net/socket.h"
#include "common/pki/authority.h"
#include "common/pki/tls_stream.h"
#include "common/text.h"

namespace ringmaster::pki {
namespace {

using std::chrono::steady_clock;

// So that no signature for something else is one for this.
constexpr char kRenewal[] = "ringmaster renewal\n";
constexpr int kMostCode = static_cast<int>(absl::StatusCode::kUnauthenticated);

Status Denied(const std::string& message) {
  return Error(absl::StatusCode::kUnauthenticated, "{}", message);
}

// Who has to answer, and in what words it is said that somebody else did.
struct Expected {
  Address coordinator;
  std::vector<Sha256Digest> authorities;  // one of them; asked for is the first
  const char* whose;                      // they are
  const char* unsent;                     // what nobody else gets
};

Status Greet(const OwnedFile& socket, steady_clock::time_point deadline) {
  RING_RETURN_IF_ERROR(AwaitSocket(socket.get(), POLLOUT, deadline, "the greeting"));
  const size_t size = std::strlen(kJoinGreeting);  // the first bytes: there is room for them
  if (send(socket.get(), kJoinGreeting, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) {
    return Error(absl::StatusCode::kUnavailable, "the connection ended");
  }
  return absl::OkStatus();
}

// Whether it is the cluster that was expected which has answered.
StatusOr<Identity> CheckServer(const Expected& expected, const std::vector<Certificate>& chain,
                               Time now) {
  const std::string where = expected.coordinator.ToString();
  if (chain.empty()) return Denied(where + " has no certificate");
  std::vector<Certificate> pinned;
  std::string shown, known;
  for (const Certificate& one : chain) {
    if (!one.is_authority()) continue;
    const Sha256Digest hash = one.KeyHash();
    shown += (shown.empty() ? "" : ", ") + ShortHash(hash);
    const auto& all = expected.authorities;
    if (std::find(all.begin(), all.end(), hash) != all.end()) pinned.push_back(one);
  }
  for (const Sha256Digest& hash : expected.authorities) {
    known += (known.empty() ? "" : ", ") + ShortHash(hash);
  }
  if (pinned.empty()) {
    return Denied(fmt::format(
        "{0} is not the cluster of this {1}: its authority is {2}, the {1}'s is {3}. It is another "
        "cluster, one with a new authority, or somebody between; {4} was not sent. Take a new "
        "token of `ringctl token create`, and compare the address",
        where, expected.whose, shown.empty() ? "not shown" : shown, known, expected.unsent));
  }
  const auto unsent = [&](const std::string& why) {
    return Denied(fmt::format("{}{}; {} was not sent", where, why, expected.unsent));
  };
  const StatusOr<Identity> server = Verify(chain.front(), pinned, Side::kServer, now);
  if (!server.ok()) return unsent(": " + Message(server.status()));
  if (server->kind != Kind::kCoordinator) {
    return unsent(fmt::format(" is {}, no coordinator", ToUri(*server)));
  }
  return server;
}

StatusOr<v1::JoinReply> Ask(TlsStream& stream, v1::JoinRequest* request) {
  std::string bytes = request->SerializeAsString();
  Wipe(request->mutable_secret());
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

// By how much the clocks of the two differ, where that is worth a word.
std::string ClocksOf(const google::protobuf::Timestamp& theirs, Time now) {
  // From year 1 to 9999, as timestamp.proto says: else it is no time, and a difference may
  // overflow.
  const int64_t seconds = theirs.seconds();
  if (seconds < -62'135'596'800 || seconds > 253'402'300'799) return "";
  const int64_t difference = seconds - now.time_since_epoch().count();
  if (std::abs(difference) <= std::chrono::seconds(kBackdating).count()) return "";
  return fmt::format(
      "this host's clock says {}, the coordinator's {}: they differ by {} min, and this one is {}",
      Shown(now), Shown(Time(std::chrono::seconds(seconds))), (std::abs(difference) + 30) / 60,
      difference > 0 ? "behind" : "ahead");
}

Status RefusalIn(const v1::JoinReply& reply, Time now) {
  if (reply.code() == 0) return absl::OkStatus();
  const bool known = reply.code() > 0 && reply.code() <= kMostCode;
  const std::string reason = OneLine(reply.reason(), kMaxNameText);
  const std::string clocks = reply.has_now() ? ClocksOf(reply.now(), now) : "";
  return Error(known ? static_cast<absl::StatusCode>(reply.code()) : absl::StatusCode::kUnknown,
               "the coordinator refused: {}{}{}", OneLine(reply.message()),
               reason.empty() ? "" : fmt::format(" ({})", reason),
               clocks.empty() ? "" : "; " + clocks);
}

// The request goes to nobody but who is expected.
StatusOr<Issued> Exchange(const Expected& expected, v1::JoinRequest* request, const Key& key,
                          Time now, steady_clock::time_point deadline) {
  const std::string where = expected.coordinator.ToString();
  StatusOr<OwnedFile> socket = ConnectTo(expected.coordinator, deadline);
  if (!socket.ok()) {
    return Error(absl::StatusCode::kUnavailable,
                 "cannot reach the coordinator at {} ({}): does it run, does it listen on that "
                 "address (--listen), and is there a firewall between?",
                 where, Message(socket.status()));
  }
  if (const Status greeted = Greet(*socket, deadline); !greeted.ok()) {
    return Annotate(greeted, where);
  }
  auto stream = TlsStream::Connect(*std::move(socket), expected.authorities.front(), deadline);
  if (!stream.ok()) {
    return Annotate(stream.status(), where + " does not answer as a coordinator with TLS does");
  }
  RING_ASSIGN_OR_RETURN(const Identity server, CheckServer(expected, (*stream)->PeerChain(), now));
  const auto reply = Ask(**stream, request);
  if (!reply.ok()) return Annotate(reply.status(), where);
  RING_RETURN_IF_ERROR(RefusalIn(*reply, now));
  RING_ASSIGN_OR_RETURN(Issued issued, CheckIssued(reply->issued(), key, now));
  const bool trusted =
      std::any_of(issued.authorities.begin(), issued.authorities.end(), [&](const auto& one) {
        const auto& all = expected.authorities;
        return std::find(all.begin(), all.end(), one.KeyHash()) != all.end();
      });
  if (!trusted) {
    return Denied(fmt::format("{} sent a certificate of another authority than the {}'s", where,
                              expected.whose));
  }
  if (issued.identity.cluster != server.cluster) {
    return Denied(fmt::format("{} sent a certificate for {}, but is of cluster {}", where,
                              ToUri(issued.identity), server.cluster));
  }
  return issued;
}

}  // namespace

StatusOr<Issued> CheckIssued(const v1::IssuedCertificate& message, const Key& key, Time now) {
  const std::string clocks = message.has_now() ? ClocksOf(message.now(), now) : "";
  const auto bad = [&clocks](const std::string& why) {
    return Denied("what the coordinator sent cannot be used: " + why +
                  (clocks.empty() ? "" : "; " + clocks));
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
  return Issued{*std::move(certificate), std::move(authorities), *std::move(identity), clocks};
}

StatusOr<Issued> Join(const JoinToken& token, const std::string& name, const Key& key, Time now,
                      steady_clock::time_point deadline) {
  v1::JoinRequest request;
  RING_ASSIGN_OR_RETURN(*request.mutable_signing_request(), key.SigningRequest());
  request.set_token_id(token.id);
  request.set_secret(token.secret.text());
  request.set_name(name);
  const auto issued = Exchange({token.coordinator, {token.authority}, "token", "the secret"},
                               &request, key, now, deadline);
  Wipe(request.mutable_secret());
  return issued;
}

StatusOr<Issued> Renew(const Address& coordinator, const Credentials& own, const Key& key, Time now,
                       steady_clock::time_point deadline) {
  Expected expected{coordinator, {}, "certificate", "the request"};
  for (const Certificate& one : own.authorities) expected.authorities.push_back(one.KeyHash());
  RING_ASSIGN_OR_RETURN(const std::string signing_request, key.SigningRequest());
  v1::JoinRequest request;
  request.set_renews(own.certificate.ToDer());
  request.set_signing_request(signing_request);
  RING_ASSIGN_OR_RETURN(*request.mutable_proof(), own.key.Sign(kRenewal + signing_request));
  RING_ASSIGN_OR_RETURN(Issued issued, Exchange(expected, &request, key, now, deadline));
  if (issued.identity == own.identity) return issued;
  return Denied(
      fmt::format("{} sent a certificate for {}", coordinator.ToString(), ToUri(issued.identity)));
}

StatusOr<Certificate> CheckRenewal(const v1::JoinRequest& request,
                                   const std::vector<Certificate>& authorities, Time now) {
  auto certificate = Certificate::FromDer(request.renews());
  if (!certificate.ok()) return Denied(Message(certificate.status()));
  RING_RETURN_IF_ERROR(Verify(*certificate, authorities, Side::kClient,
                              std::min(now, certificate->not_after() - std::chrono::seconds(1)))
                           .status());
  if (certificate->HasSigned(kRenewal + request.signing_request(), request.proof())) {
    return certificate;
  }
  return Denied("the request is not signed with the key of the certificate that it shows");
}

Status ServeJoin(OwnedFile socket, const std::vector<Credentials>& own,
                 steady_clock::time_point deadline, const JoinHandler& handler) {
  sockaddr_storage peer = {};
  socklen_t length = sizeof(peer);
  std::string address = "?";
  if (getpeername(socket.get(), reinterpret_cast<sockaddr*>(&peer), &length) == 0) {
    address = NumericHost(reinterpret_cast<const sockaddr*>(&peer), length);
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
