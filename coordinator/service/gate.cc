#include "coordinator/service/gate.h"

#include <utility>

#include "common/rpc/rpc_status.h"
#include "common/text.h"
#include "coordinator/access/permissions.h"

namespace ringmaster::coordinator {
namespace {

// Who is late with it may still do it.
constexpr char kRenew[] = "/ringmaster.v1.Access/Renew";

// gRPC's own pseudo-header; it is there in every call.
std::string PathOf(const Gate::InputMetadata& metadata) {
  const auto path = metadata.find(":path");
  return path == metadata.end() ? "" : std::string(path->second.data(), path->second.size());
}

Refusal NotPermitted(const Caller& caller, const std::string& path) {
  return {Error(absl::StatusCode::kPermissionDenied,
                "{}, whose role is {}, may not call {}; who may is {}", caller.ToString(),
                RoleName(caller.role), OneLine(path, kMaxNameText), WhoMayCall(path)),
          "NOT_PERMITTED"};
}

// gRPC looks at a certificate when a connection is made, and never again. Who has a newer one by
// now is still who it was, and connects anew before long (its connections have an age).
Refusal Ended(const Caller& caller, UnixTime now) {
  return {Error(absl::StatusCode::kUnauthenticated,
                "{} made this connection with a certificate that was good until {}, and the "
                "coordinator's clock says {}; connect anew with a renewed one",
                caller.ToString(), TimeText(*caller.certificate_expires), TimeText(now)),
          "CERTIFICATE_EXPIRED"};
}

}  // namespace

Passage Gate::Identify(const grpc::AuthContext& connection) const {
  Passage passage;
  const StatusOr<PeerCertificate> certificate = hands_.certificate_of(connection);
  if (!certificate.ok()) {
    passage.refusal = {Status(absl::StatusCode::kUnauthenticated, certificate.status().message()),
                       "NOT_AUTHENTICATED"};
    return passage;
  }
  passage.caller.identity = certificate->identity;
  passage.caller.certificate_expires = certificate->expires;
  const auto identities = hands_.identities->Get();
  passage.refusal = identities->Check(*certificate);
  if (passage.refusal.status.ok()) {
    passage.caller.role = identities->Find(certificate->identity)->role;
  }
  return passage;
}

Passage Gate::Pass(const grpc::AuthContext& connection, const std::string& path) const {
  Passage passage = Identify(connection);
  if (!passage.refusal.status.ok()) return passage;
  const UnixTime now = hands_.now();
  if (ScopeOf(path, passage.caller.role) == v1::SCOPE_NONE) {
    passage.refusal = NotPermitted(passage.caller, path);
  } else if (*passage.caller.certificate_expires <= now && path != kRenew) {
    const auto identities = hands_.identities->Get();
    const IdentityRecord* const record = identities->Find(*passage.caller.identity);
    const bool renewed = record != nullptr && record->certificate_expires > now;
    if (!renewed) passage.refusal = Ended(passage.caller, now);
  }
  return passage;
}

grpc::Status Gate::Process(const InputMetadata& metadata, grpc::AuthContext* connection,
                           OutputMetadata*, OutputMetadata*) {
  const std::string path = PathOf(metadata);
  const Passage passage = Pass(*connection, path);
  if (passage.refusal.status.ok()) return grpc::Status::OK;
  NoteRefusal(passage, path);
  return ToGrpc(passage.refusal.status, passage.refusal.word);
}

uint64_t Gate::refused() const {
  MutexLock lock(mu_);
  return refused_;
}

void Gate::NoteRefusal(const Passage& passage, const std::string& path) {
  v1::AuditEntry entry;
  entry.set_who(passage.caller.identity ? passage.caller.ToString() : "unknown");
  entry.set_what("call");
  entry.set_subject(OneLine(path, kMaxNameText));
  entry.set_result(passage.refusal.word);
  const UnixTime now = hands_.now();
  {
    MutexLock lock(mu_);
    ++refused_;
    if (!limit_.Admit(&entry, now)) return;
  }
  hands_.on_refusal(entry, now);
}

}  // namespace ringmaster::coordinator
