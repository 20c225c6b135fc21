#include "coordinator/service/access_service.h"

#include <google/protobuf/util/time_util.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/pki/authority.h"
#include "common/rpc/rpc_status.h"
#include "common/text.h"

namespace ringmaster::coordinator {
namespace {

using google::protobuf::Timestamp;
using google::protobuf::util::TimeUtil;

constexpr size_t kMostSigningRequest = 16 << 10;

Timestamp ToTimestamp(UnixTime time) {
  return TimeUtil::MillisecondsToTimestamp(time.time_since_epoch().count());
}

Refusal NoAuthority() {
  return {FailedPrecondition("this coordinator has no certificate authority, so that nobody can "
                             "join it"),
          "NO_AUTHORITY"};
}

Refusal NotTaken(const Status& status) {
  return {status, absl::IsResourceExhausted(status) ? "OVERLOADED" : "UNAVAILABLE"};
}

// A call waits in line, behind others that may end who made it.
Refusal Check(const Identities& identities, const Caller& caller) {
  if (!caller.identity) return {};
  const IdentityRecord* const live = identities.FindLive(*caller.identity);
  if (live != nullptr && live->role == caller.role) return {};
  return {Error(absl::StatusCode::kUnauthenticated, "{} was revoked; join again with a new token",
                caller.ToString()),
          "REVOKED"};
}

v1::Identity ToProto(const IdentityRecord& record) {
  v1::Identity identity;
  identity.set_name(record.identity.name);
  identity.set_role(record.role);
  *identity.mutable_joined() = ToTimestamp(record.joined);
  *identity.mutable_certificate_expires() = ToTimestamp(record.certificate_expires);
  if (record.revoked) *identity.mutable_revoked() = ToTimestamp(*record.revoked);
  return identity;
}

}  // namespace

AccessService::AccessService(Hands hands)
    : hands_(std::move(hands)),
      access_(*hands_.store, {.certificate_life = hands_.certificate_life,
                              .random_bytes = hands_.random_bytes,
                              .on_write = [this](const Status& status) { OnWrite(status); },
                              .backdating = pki::kBackdating}) {}

// Whoever is refused for it is told to look at the log.
void AccessService::OnWrite(const Status& status) {
  const StoreTrouble::Time now = hands_.now().time_since_epoch();
  if (status.ok()) {
    if (trouble_.lasts()) {
      trouble_.End(now);
      spdlog::info("store: tokens and identities can be written again");
    }
  } else if (trouble_.Failed(status, now)) {
    spdlog::warn("store: tokens and identities cannot be written: {}", Message(status));
  }
}

Status AccessService::Restore() {
  RING_RETURN_IF_ERROR(access_.Restore());
  Publish();
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* AccessService::AnswerNow(grpc::CallbackServerContext* context,
                                                   const char* method, Answer answer) {
  return hands_.calls->Answer(context, {method, CallKind::kShort},
                              [answer = std::move(answer)](UnaryCall* call) {
                                const Refusal refusal = answer(call->caller());
                                call->Finish(ToGrpc(refusal.status, refusal.word));
                              });
}

// Request and response live until Finish.
grpc::ServerUnaryReactor* AccessService::AnswerOnLoop(grpc::CallbackServerContext* context,
                                                      const char* method, size_t bytes,
                                                      Answer answer) {
  return hands_.calls->Answer(
      context, {method, CallKind::kShort},
      [this, method, bytes, answer = std::move(answer)](UnaryCall* call) {
        const Status taken = hands_.run(bytes, [this, method, call, answer] {
          const Caller& caller = call->caller();
          Refusal answered = Check(*access_.identities(), caller);
          if (answered.status.ok()) {
            answered = answer(caller);
          } else {
            v1::AuditEntry refused;
            refused.set_who(caller.ToString());
            refused.set_what("call");
            refused.set_subject(fmt::format("/ringmaster.v1.{}", method));
            refused.set_result(answered.word);
            access_.NoteRefusal(refused, hands_.now());
          }
          call->Finish(ToGrpc(answered.status, answered.word));
        });
        if (taken.ok()) return;
        const Refusal refusal = NotTaken(taken);
        call->Finish(ToGrpc(refusal.status, refusal.word));
      });
}

grpc::ServerUnaryReactor* AccessService::CreateToken(grpc::CallbackServerContext* context,
                                                     const v1::CreateTokenRequest* request,
                                                     v1::CreateTokenResponse* response) {
  return AnswerOnLoop(
      context, "Access/CreateToken", request->ByteSizeLong(),
      [this, request, response](const Caller& caller) {
        if (!hands_.authority) return NoAuthority();
        const NewToken made = access_.CreateToken(*request, caller, hands_.now());
        if (!made.refusal.status.ok()) return made.refusal;
        response->set_token(hands_.authority->token_line(made.about.id(), made.secret));
        *response->mutable_about() = made.about;
        return Refusal();
      });
}

grpc::ServerUnaryReactor* AccessService::ListTokens(grpc::CallbackServerContext* context,
                                                    const v1::ListTokensRequest*,
                                                    v1::ListTokensResponse* response) {
  return AnswerOnLoop(context, "Access/ListTokens", 0, [this, response](const Caller&) {
    *response = access_.ListTokens(hands_.now());
    return Refusal();
  });
}

grpc::ServerUnaryReactor* AccessService::RevokeToken(grpc::CallbackServerContext* context,
                                                     const v1::RevokeTokenRequest* request,
                                                     v1::RevokeTokenResponse*) {
  return AnswerOnLoop(context, "Access/RevokeToken", request->ByteSizeLong(),
                      [this, request](const Caller& caller) {
                        return access_.RevokeToken(request->id(), caller, hands_.now());
                      });
}

grpc::ServerUnaryReactor* AccessService::Renew(grpc::CallbackServerContext* context,
                                               const v1::RenewRequest* request,
                                               v1::IssuedCertificate* response) {
  const size_t bytes = request->signing_request().size();
  return AnswerOnLoop(
      context, "Access/Renew", bytes, [this, bytes, request, response](const Caller& caller) {
        if (!hands_.authority) return NoAuthority();
        if (bytes == 0 || bytes > kMostSigningRequest) {
          return Refusal{InvalidArgument("signing_request: expected a PKCS #10 request of 1 to {} "
                                         "bytes, got {}",
                                         kMostSigningRequest, bytes),
                         "INVALID_REQUEST"};
        }
        if (const Status good = hands_.authority->check(request->signing_request()); !good.ok()) {
          return Refusal{good, "INVALID_REQUEST"};
        }
        const Grant grant = access_.Renew(caller, hands_.now());
        Publish();
        return Sign(grant, request->signing_request(), response);
      });
}

Refusal AccessService::Sign(const Grant& grant, const std::string& signing_request,
                            v1::IssuedCertificate* issued) const {
  if (!grant.refusal.status.ok()) return grant.refusal;
  StatusOr<v1::IssuedCertificate> made =
      hands_.authority->sign(signing_request, grant.identity, grant.issue);
  if (!made.ok()) {
    return {made.status(),
            absl::IsInvalidArgument(made.status()) ? "INVALID_REQUEST" : "NO_AUTHORITY"};
  }
  *issued = *std::move(made);
  return {};
}

grpc::ServerUnaryReactor* AccessService::WhoAmI(grpc::CallbackServerContext* context,
                                                const v1::WhoAmIRequest*,
                                                v1::WhoAmIResponse* response) {
  return AnswerNow(context, "Access/WhoAmI", [this, response](const Caller& caller) {
    response->set_role(caller.role);
    if (caller.identity) {
      response->set_identity(UriOf(*caller.identity));
    } else {
      response->set_local("yes");
    }
    if (caller.certificate_expires) {
      *response->mutable_certificate_expires() = ToTimestamp(*caller.certificate_expires);
    }
    return Refusal();
  });
}

grpc::ServerUnaryReactor* AccessService::ListIdentities(grpc::CallbackServerContext* context,
                                                        const v1::ListIdentitiesRequest*,
                                                        v1::ListIdentitiesResponse* response) {
  return AnswerNow(context, "Access/ListIdentities", [this, response](const Caller&) {
    const auto identities = hands_.identities->Get();
    std::vector<const IdentityRecord*> records;
    for (const auto& [name, record] : identities->all()) records.push_back(&record);
    std::stable_sort(records.begin(), records.end(),
                     [](const auto* a, const auto* b) { return a->role < b->role; });
    for (const IdentityRecord* record : records) {
      v1::Identity& identity = *response->add_identities();
      identity = ToProto(*record);
      identity.set_uri(UriOf(record->identity));
    }
    return Refusal();
  });
}

grpc::ServerUnaryReactor* AccessService::RevokeIdentity(grpc::CallbackServerContext* context,
                                                        const v1::RevokeIdentityRequest* request,
                                                        v1::RevokeIdentityResponse*) {
  return AnswerOnLoop(context, "Access/RevokeIdentity", request->ByteSizeLong(),
                      [this, request](const Caller& caller) {
                        const IdentityName name{KindOf(request->role()), request->name()};
                        const Refusal refusal = access_.RevokeIdentity(name, caller, hands_.now());
                        if (!refusal.status.ok()) return refusal;
                        Publish();
                        if (hands_.on_revoked) hands_.on_revoked(name);
                        return refusal;
                      });
}

grpc::ServerUnaryReactor* AccessService::ListAuthorities(grpc::CallbackServerContext* context,
                                                         const v1::ListAuthoritiesRequest*,
                                                         v1::ListAuthoritiesResponse* response) {
  return AnswerNow(context, "Access/ListAuthorities", [this, response](const Caller&) {
    if (!hands_.authority) return NoAuthority();
    *response = hands_.authority->list();
    return Refusal();
  });
}

// What was made stays, also when the entry cannot be written: it is trusted from then on.
grpc::ServerUnaryReactor* AccessService::RotateAuthority(grpc::CallbackServerContext* context,
                                                         const v1::RotateAuthorityRequest*,
                                                         v1::ListAuthoritiesResponse* response) {
  return AnswerOnLoop(
      context, "Access/RotateAuthority", 0, [this, response](const Caller& caller) -> Refusal {
        if (!hands_.authority) return NoAuthority();
        const UnixSeconds last_end = access_.identities()->LastEnd(hands_.now());
        const Status made = hands_.authority->rotate(last_end);
        if (!made.ok()) {
          return {made, absl::IsFailedPrecondition(made) ? "ROTATING" : "STORE_UNAVAILABLE"};
        }
        *response = hands_.authority->list();
        v1::AuditEntry entry;
        entry.set_who(caller.ToString());
        entry.set_what("authority rotate");
        entry.set_subject(response->authorities().rbegin()->id());
        entry.set_result("ok");
        return access_.Note(entry, hands_.now());
      });
}

grpc::ServerUnaryReactor* AccessService::ListAudit(grpc::CallbackServerContext* context,
                                                   const v1::ListAuditRequest* request,
                                                   v1::ListAuditResponse* response) {
  return AnswerOnLoop(context, "Access/ListAudit", 0,
                      [this, request, response](const Caller&) -> Refusal {
                        StatusOr<v1::ListAuditResponse> entries = access_.ListAudit(*request);
                        if (!entries.ok()) {
                          return {entries.status(), absl::IsInvalidArgument(entries.status())
                                                        ? "INVALID_REQUEST"
                                                        : "STORE_UNAVAILABLE"};
                        }
                        *response = *std::move(entries);
                        return {};
                      });
}

void AccessService::Join(const v1::JoinRequest& request, const std::string& key_sha256,
                         const std::string& address,
                         std::function<void(const v1::JoinReply&)> done) {
  const auto reply = [done, now = hands_.now](const Refusal& refusal, v1::JoinReply filled) {
    filled.set_code(static_cast<int>(refusal.status.code()));
    filled.set_reason(refusal.word);
    filled.set_message(OneLine(Message(refusal.status)));
    *filled.mutable_now() = ToTimestamp(now());
    done(filled);
  };
  std::optional<StatusOr<PeerCertificate>> shown;
  if (hands_.authority && !request.renews().empty()) shown = hands_.authority->shown(request);
  const auto join = [this, request, key_sha256, address, shown, reply] {
    if (!hands_.authority) return reply(NoAuthority(), {});
    const Grant grant = Admit(request, key_sha256, address, shown);
    Publish();
    v1::JoinReply filled;
    const Refusal refusal = Sign(grant, request.signing_request(), filled.mutable_issued());
    if (!refusal.status.ok()) filled.clear_issued();
    reply(refusal, filled);
  };
  const Status taken = hands_.run(request.ByteSizeLong(), join);
  if (!taken.ok()) reply(NotTaken(taken), {});
}

Grant AccessService::Admit(const v1::JoinRequest& request, const std::string& key_sha256,
                           const std::string& address,
                           const std::optional<StatusOr<PeerCertificate>>& shown) {
  const UnixTime now = hands_.now();
  if (!shown) {
    return access_.Redeem(
        {request.token_id(), request.secret(), request.name(), key_sha256, address}, now);
  }
  if (shown->ok()) return access_.RenewEnded(**shown, now);
  v1::AuditEntry refused;
  refused.set_who("address " + address);
  refused.set_what("renew");
  refused.set_result("NOT_AUTHENTICATED");
  access_.NoteRefusal(refused, now);
  return {{shown->status(), refused.result()}, {}, {}};
}

void AccessService::NoteDone(const std::string& what, const std::string& subject) {
  (void)hands_.run(0, [this, what, subject] {
    v1::AuditEntry done;
    done.set_who("coordinator");
    done.set_what(what);
    done.set_subject(subject);
    done.set_result("ok");
    (void)access_.Note(done, hands_.now());
  });
}

void AccessService::NoteRefusal(const v1::AuditEntry& refused, UnixTime now) {
  (void)hands_.run(0, [this, refused, now] { access_.NoteRefusal(refused, now); });
}

std::string AccessService::UriOf(const IdentityName& identity) const {
  return hands_.authority ? hands_.authority->uri(identity) : identity.ToString();
}

}  // namespace ringmaster::coordinator
