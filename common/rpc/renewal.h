// How whoever has a certificate gets the next one of the coordinator: a new key, one question, and
// the new pair in the place of the old one. Over gRPC while the certificate is good, as a join
// (common/pki/join.h) behind its end. When to do so again after a failure the caller knows.
// Thread-safe (free functions); one writer of a folder at a time.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <memory>
#include <string>

#include "common/net/address.h"
#include "common/pki/credential_folder.h"
#include "common/pki/join.h"
#include "common/status.h"

namespace ringmaster {

struct RenewalPlace {
  std::string folder;                      // of the credentials
  Address coordinator;                     // host and port
  std::shared_ptr<grpc::Channel> channel;  // to it; may be null once they ended
};

// Two thirds of its time are over.
[[nodiscard]] bool IsRenewalDue(const pki::Credentials& own, pki::Time now);

// Waits until `call`'s deadline at the longest, over gRPC until it is cancelled. Nothing changes
// after an error: the coordinator's refusal; UNAVAILABLE or DEADLINE_EXCEEDED: it does not answer;
// else of CheckIssued, Renew and WriteCredentials.
[[nodiscard]] StatusOr<pki::Issued> RenewCredentials(const RenewalPlace& place,
                                                     const pki::Credentials& own, pki::Time now,
                                                     grpc::ClientContext* call);

}  // namespace ringmaster
