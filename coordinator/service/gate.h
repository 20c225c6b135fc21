// Who may come in: a gRPC server asks it about every call of a TLS connection before any handler
// sees it. Identity, then role, then the table of methods; whatever is in none of them is refused.
// Owned by the daemon; thread-safe, called by gRPC's threads, waits for nothing and nobody. It
// knows no request: of a call that is for what is one's own alone (SCOPE_OWN) the service checks
// whose it is.
#pragma once

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/server_context.h>

#include <functional>
#include <memory>
#include <string>

#include "common/mutex.h"
#include "common/status.h"
#include "coordinator/access/access.h"

namespace ringmaster::coordinator {

// The identities as they are now: AccessService publishes, everybody reads. Thread-safe.
class IdentityBoard {
 public:
  void Publish(std::shared_ptr<const Identities> identities) {
    MutexLock lock(mu_);
    identities_ = std::move(identities);
  }
  [[nodiscard]] std::shared_ptr<const Identities> Get() const {
    MutexLock lock(mu_);
    return identities_;
  }

 private:
  mutable Mutex mu_;
  std::shared_ptr<const Identities> identities_ ABSL_GUARDED_BY(mu_) =
      std::make_shared<const Identities>();
};

// What one certificate may do at one method. An error has the words, and `caller` as far as it is
// known.
struct Passage {
  Refusal refusal;
  Caller caller;
};

// Who makes a call, over TLS or without.
using CallerOf = std::function<Passage(grpc::CallbackServerContext*)>;

class Gate final : public grpc::AuthMetadataProcessor {
 public:
  struct Hands {
    const IdentityBoard* identities;  // outlives it
    // Of a connection; an error says what is wrong with its certificate.
    std::function<StatusOr<PeerCertificate>(const grpc::AuthContext&)> certificate_of;
    // Any thread; of those that RefusalLimit admits.
    std::function<void(const v1::AuditEntry& refused, UnixTime now)> on_refusal;
    std::function<UnixTime()> now;
  };
  explicit Gate(Hands hands) : hands_(std::move(hands)) {}

  // Who has this connection. UNAUTHENTICATED: NOT_AUTHENTICATED, REVOKED.
  [[nodiscard]] Passage Identify(const grpc::AuthContext& connection) const;
  // Whether they may call a method at all. PERMISSION_DENIED, NOT_PERMITTED; UNAUTHENTICATED,
  // CERTIFICATE_EXPIRED: it ended since they connected, and that is no call to renew it.
  [[nodiscard]] Passage Pass(const grpc::AuthContext& connection, const std::string& path) const;

  // A refusal for the audit, of the gate or of who is behind it.
  void NoteRefusal(const Passage& passage, const std::string& path);

  // Refusals so far, also those that nobody was told of.
  [[nodiscard]] uint64_t refused() const;

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* connection,
                       OutputMetadata* consumed, OutputMetadata* response) override;

 private:
  const Hands hands_;

  mutable Mutex mu_;
  uint64_t refused_ ABSL_GUARDED_BY(mu_) = 0;
  RefusalLimit limit_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ringmaster::coordinator
