// The Access service, and joining, which is no RPC: translates, asks Access on the store's thread,
// replies. Owned by the daemon; thread-safe. It decides nothing. Certificates are signed on that
// thread, too: one takes less than the write before it.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "coordinator/access/access.h"
#include "coordinator/service/gate.h"
#include "coordinator/service/open_calls.h"
#include "coordinator/shell/store_trouble.h"
#include "ringmaster/v1/access.grpc.pb.h"

namespace ringmaster::coordinator {

// Who signs for the cluster. Each is called on the store's thread, but for `uri`: on any thread.
struct Authority {
  // Whether `sign` will take a signing request, before anything is stored. INVALID_ARGUMENT: it is
  // none.
  std::function<Status(const std::string& signing_request)> check;
  // All of the certificate, issued at `now`, for the key of a signing request. INVALID_ARGUMENT: it
  // is none.
  std::function<StatusOr<v1::IssuedCertificate>(const std::string& signing_request,
                                                const IdentityName& identity, UnixSeconds now)>
      sign;
  // The line that is handed on.
  std::function<std::string(const std::string& id, const std::string& secret)> token_line;
  std::function<std::string(const IdentityName& identity)> uri;  // spiffe://...
  // Whose certificate a join that is a renewal shows. Any thread. UNAUTHENTICATED: it is none, or
  // not theirs.
  std::function<StatusOr<PeerCertificate>(const v1::JoinRequest& request)> shown;
  std::function<v1::ListAuthoritiesResponse()> list;
  // `last_end`: of the certificates that it signed so far. FAILED_PRECONDITION: one is on its way.
  // Else UNAVAILABLE.
  std::function<Status(UnixSeconds last_end)> rotate;
};

class AccessService final : public v1::Access::CallbackService {
 public:
  struct Hands {
    AccessStore* store;         // store's thread only, from Restore on
    IdentityBoard* identities;  // is told of every change, before it is answered
    // Runs a task on the store's thread, as ControlLoop::Run does.
    std::function<Status(size_t bytes, std::function<void()> task)> run;
    OpenCalls* calls;  // outlives it
    std::optional<Authority> authority;
    std::chrono::seconds certificate_life = std::chrono::hours(7 * 24);  // that `sign` gives
    std::function<std::string(size_t bytes)> random_bytes;
    std::function<UnixTime()> now;
    // On the store's thread, when it is stored and no call of theirs comes in any more. May be
    // empty.
    std::function<void(const IdentityName&)> on_revoked;
  };
  explicit AccessService(Hands hands);

  // Takes over what the store holds. Before the loop starts.
  [[nodiscard]] Status Restore();

  // Somebody shows a token, or an old certificate. `done` always runs, on the store's thread or,
  // when that takes nothing, at once. `key_sha256` is that of the key that the request's own
  // signature proves.
  void Join(const v1::JoinRequest& request, const std::string& key_sha256,
            const std::string& address, std::function<void(const v1::JoinReply&)> done);
  // What the coordinator does itself, for the audit. Thread-safe, as NoteRefusal.
  void NoteDone(const std::string& what, const std::string& subject);
  // For the audit. Thread-safe, waits for nothing; while that thread takes nothing it is lost.
  void NoteRefusal(const v1::AuditEntry& refused, UnixTime now);

  grpc::ServerUnaryReactor* CreateToken(grpc::CallbackServerContext* context,
                                        const v1::CreateTokenRequest* request,
                                        v1::CreateTokenResponse* response) override;
  grpc::ServerUnaryReactor* ListTokens(grpc::CallbackServerContext* context,
                                       const v1::ListTokensRequest* request,
                                       v1::ListTokensResponse* response) override;
  grpc::ServerUnaryReactor* RevokeToken(grpc::CallbackServerContext* context,
                                        const v1::RevokeTokenRequest* request,
                                        v1::RevokeTokenResponse* response) override;
  grpc::ServerUnaryReactor* Renew(grpc::CallbackServerContext* context,
                                  const v1::RenewRequest* request,
                                  v1::IssuedCertificate* response) override;
  grpc::ServerUnaryReactor* WhoAmI(grpc::CallbackServerContext* context,
                                   const v1::WhoAmIRequest* request,
                                   v1::WhoAmIResponse* response) override;
  grpc::ServerUnaryReactor* ListIdentities(grpc::CallbackServerContext* context,
                                           const v1::ListIdentitiesRequest* request,
                                           v1::ListIdentitiesResponse* response) override;
  grpc::ServerUnaryReactor* RevokeIdentity(grpc::CallbackServerContext* context,
                                           const v1::RevokeIdentityRequest* request,
                                           v1::RevokeIdentityResponse* response) override;
  grpc::ServerUnaryReactor* ListAuthorities(grpc::CallbackServerContext* context,
                                            const v1::ListAuthoritiesRequest* request,
                                            v1::ListAuthoritiesResponse* response) override;
  grpc::ServerUnaryReactor* RotateAuthority(grpc::CallbackServerContext* context,
                                            const v1::RotateAuthorityRequest* request,
                                            v1::ListAuthoritiesResponse* response) override;
  grpc::ServerUnaryReactor* ListAudit(grpc::CallbackServerContext* context,
                                      const v1::ListAuditRequest* request,
                                      v1::ListAuditResponse* response) override;

 private:
  // What a call does once it is known who makes it.
  using Answer = std::function<Refusal(const Caller& caller)>;
  grpc::ServerUnaryReactor* AnswerNow(grpc::CallbackServerContext* context, const char* method,
                                      Answer answer);
  grpc::ServerUnaryReactor* AnswerOnLoop(grpc::CallbackServerContext* context, const char* method,
                                         size_t bytes, Answer answer);
  [[nodiscard]] Refusal Sign(const Grant& grant, const std::string& signing_request,
                             v1::IssuedCertificate* issued) const;
  [[nodiscard]] std::string UriOf(const IdentityName& identity) const;
  // The end of a join, on the store's thread.
  [[nodiscard]] Grant Admit(const v1::JoinRequest& request, const std::string& key_sha256,
                            const std::string& address,
                            const std::optional<StatusOr<PeerCertificate>>& shown);
  void Publish() { hands_.identities->Publish(access_.identities()); }

  void OnWrite(const Status& status);

  const Hands hands_;
  StoreTrouble trouble_;  // store's thread only, from Restore on
  Access access_;         // likewise
};

}  // namespace ringmaster::coordinator
