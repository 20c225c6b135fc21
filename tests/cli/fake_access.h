// The Access service for the tests of ringctl: what stands here, and what was asked of it.
// Thread-safe.
#pragma once

#include <google/protobuf/util/time_util.h>

#include <atomic>
#include <string>

#include "common/mutex.h"
#include "common/rpc/rpc_status.h"
#include "ringmaster/v1/access.grpc.pb.h"

namespace ringmaster::cli {

class FakeAccess final : public v1::Access::Service {
 public:
  grpc::Status CreateToken(grpc::ServerContext*, const v1::CreateTokenRequest* request,
                           v1::CreateTokenResponse* response) override {
    if (request->name() == "a") {
      return ToGrpc(Error(absl::StatusCode::kAlreadyExists,
                          "worker/a is an identity of this cluster already"),
                    "NAME_TAKEN");
    }
    response->set_token("rm1/192.0.2.1:7700/hash/k3v7q2ma/secret");
    *response->mutable_about() = About("k3v7q2ma", request->role(), request->name(),
                                       request->uses(), request->ttl_seconds());
    MutexLock lock(mu_);
    *tokens_.add_tokens() = response->about();
    return grpc::Status::OK;
  }
  grpc::Status ListTokens(grpc::ServerContext*, const v1::ListTokensRequest*,
                          v1::ListTokensResponse* response) override {
    MutexLock lock(mu_);
    *response = tokens_;
    return grpc::Status::OK;
  }
  grpc::Status RevokeToken(grpc::ServerContext*, const v1::RevokeTokenRequest* request,
                           v1::RevokeTokenResponse*) override {
    MutexLock lock(mu_);
    if (tokens_.tokens_size() == 0 || request->id() != tokens_.tokens(0).id()) {
      return ToGrpc(Error(absl::StatusCode::kNotFound, "there is no token {}", request->id()),
                    "TOKEN_NOT_FOUND");
    }
    tokens_.clear_tokens();
    return grpc::Status::OK;
  }
  grpc::Status ListIdentities(grpc::ServerContext*, const v1::ListIdentitiesRequest*,
                              v1::ListIdentitiesResponse* response) override {
    AddIdentity("eva", v1::ROLE_SUBMITTER, response);
    v1::Identity& gone = AddIdentity("max", v1::ROLE_ADMIN, response);
    *gone.mutable_revoked() = At(3'700);
    AddIdentity("b", v1::ROLE_WORKER, response);
    return grpc::Status::OK;
  }
  grpc::Status RevokeIdentity(grpc::ServerContext*, const v1::RevokeIdentityRequest* request,
                              v1::RevokeIdentityResponse*) override {
    if (request->role() == v1::ROLE_WORKER) return grpc::Status::OK;
    return ToGrpc(
        Error(absl::StatusCode::kNotFound, "there is no identity user/{}", request->name()),
        "IDENTITY_NOT_FOUND");
  }
  grpc::Status ListAuthorities(grpc::ServerContext*, const v1::ListAuthoritiesRequest*,
                               v1::ListAuthoritiesResponse* response) override {
    AddAuthority("0123456789abcdef", 86'400, response).set_signs(true);
    if (rotated_)
      *AddAuthority("fedcba9876543210", 864'000, response).mutable_signs_from() = At(600);
    return grpc::Status::OK;
  }
  grpc::Status RotateAuthority(grpc::ServerContext* context, const v1::RotateAuthorityRequest*,
                               v1::ListAuthoritiesResponse* response) override {
    if (rotated_.exchange(true)) {
      return ToGrpc(FailedPrecondition("authority fedcba9876543210 is taking the place"),
                    "ROTATING");
    }
    return ListAuthorities(context, nullptr, response);
  }
  grpc::Status ListAudit(grpc::ServerContext*, const v1::ListAuditRequest* request,
                         v1::ListAuditResponse* response) override {
    AddEntry("local", "token create", "k3v7q2ma", "ok", response);
    AddEntry("address 192.0.2.9\x1b[2J", "join", "k3v7q2ma", "TOKEN_USED, 7 more", response);
    AddEntry("worker/b", "renew", "worker/b", "ok", response);
    while (response->entries_size() > static_cast<int>(request->limit())) {
      response->mutable_entries()->erase(response->entries().begin());
    }
    return grpc::Status::OK;
  }
  grpc::Status WhoAmI(grpc::ServerContext*, const v1::WhoAmIRequest*,
                      v1::WhoAmIResponse* response) override {
    response->set_identity("spiffe://c1/user/eva");
    response->set_role(v1::ROLE_SUBMITTER);
    *response->mutable_certificate_expires() = At(604'800);
    return grpc::Status::OK;
  }

 private:
  static google::protobuf::Timestamp At(int64_t seconds) {
    return google::protobuf::util::TimeUtil::SecondsToTimestamp(1'790'000'000 + seconds);
  }
  static v1::Token About(const std::string& id, v1::Role role, const std::string& name,
                         uint32_t uses, uint32_t ttl) {
    v1::Token about;
    about.set_id(id);
    about.set_role(role);
    about.set_name(name);
    about.set_uses_left(uses);
    *about.mutable_created() = At(0);
    *about.mutable_expires() = At(ttl);
    about.set_created_by("local");
    return about;
  }
  static v1::Identity& AddIdentity(const std::string& name, v1::Role role,
                                   v1::ListIdentitiesResponse* response) {
    v1::Identity& identity = *response->add_identities();
    identity.set_name(name);
    identity.set_role(role);
    identity.set_uri((role == v1::ROLE_WORKER ? "spiffe://c1/worker/" : "spiffe://c1/user/") +
                     name);
    *identity.mutable_joined() = At(60);
    *identity.mutable_certificate_expires() = At(604'860);
    return identity;
  }
  static v1::CertificateAuthority& AddAuthority(const std::string& id, int64_t until,
                                                v1::ListAuthoritiesResponse* response) {
    v1::CertificateAuthority& authority = *response->add_authorities();
    authority.set_id(id);
    *authority.mutable_trusted_until() = At(until);
    return authority;
  }
  static void AddEntry(const std::string& who, const std::string& what, const std::string& subject,
                       const std::string& result, v1::ListAuditResponse* response) {
    v1::AuditEntry& entry = *response->add_entries();
    entry.set_number(static_cast<uint64_t>(response->entries_size()));
    *entry.mutable_at() = At(60 * response->entries_size());
    entry.set_who(who);
    entry.set_what(what);
    entry.set_subject(subject);
    entry.set_result(result);
    if (entry.number() > 1) entry.set_previous(std::string(32, '\xab'));
  }

  Mutex mu_;
  v1::ListTokensResponse tokens_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> rotated_ = false;
};

}  // namespace ringmaster::cli
