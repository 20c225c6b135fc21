// Joining: how a host or a person who has a token gets a certificate. RMJOIN1 and a line break,
// then TLS 1.3 with the server's certificate alone, then one JoinRequest and one JoinReply
// (access.proto). The joiner sends its secret to nobody but the authority that the token names.
// What a token allows is the handler's business (the coordinator). Both sides wait in the calling
// thread, until a deadline. Thread-safe (free functions).
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "common/files.h"
#include "common/pki/certificate.h"
#include "common/pki/credential_folder.h"
#include "common/pki/identity.h"
#include "common/pki/key.h"
#include "common/pki/token.h"
#include "common/status.h"
#include "ringmaster/v1/access.pb.h"

namespace ringmaster::pki {

// What a joiner says first, in the clear, so that a port knows what it wants.
inline constexpr char kJoinGreeting[] = "RMJOIN1\n";

struct Issued {
  Certificate certificate;
  std::vector<Certificate> authorities;
  Identity identity;
  // That this host's clock differs from the coordinator's by more than kBackdating, with both
  // times; else empty.
  std::string clocks = {};
};

// What the coordinator sent, of a join or a renewal, as whoever asked for it may use it.
// UNAUTHENTICATED: it is not of this key, not signed by the first of its authorities, or not valid
// now: then by how much this host's clock differs from the coordinator's.
[[nodiscard]] StatusOr<Issued> CheckIssued(const v1::IssuedCertificate& message, const Key& key,
                                           Time now);

// Asks the token's coordinator, at any of its addresses, for a certificate of `key`; `name` is what
// the joiner would like to be called, where the token does not say. UNAVAILABLE or
// DEADLINE_EXCEEDED: it cannot be reached, and where. UNAUTHENTICATED: what answers is not the
// token's cluster (the secret was not sent), or clocks differ. Else the coordinator's refusal, in
// its own words, and both clocks where they differ. Resolving a host's name is not bounded by the
// deadline, but by resolv.conf.
[[nodiscard]] StatusOr<Issued> Join(const JoinToken& token, const std::string& name, const Key& key,
                                    Time now, std::chrono::steady_clock::time_point deadline);

// Asks the coordinator at that address for another certificate in the place of `own`, for a new
// `key`; also when `own` has ended, which gRPC's TLS takes no more. Whoever answers must have one
// of own's authorities. Errors as of Join.
[[nodiscard]] StatusOr<Issued> Renew(const Address& coordinator, const Credentials& own,
                                     const Key& key, Time now,
                                     std::chrono::steady_clock::time_point deadline);

// The other side of Renew: the certificate that the request renews, when one of `authorities` has
// signed it, and its key the request; it may have ended. UNAUTHENTICATED: why not.
[[nodiscard]] StatusOr<Certificate> CheckRenewal(const v1::JoinRequest& request,
                                                 const std::vector<Certificate>& authorities,
                                                 Time now);

// The other side: `socket` has said kJoinGreeting, `own` are the coordinator's credentials, of
// each of its authorities (TlsStream::Accept). Calls
// `handler` once, when a whole request is there, with the peer's address; what it returns is sent.
// An error says why nothing was, for the log: nobody was let in.
using JoinHandler =
    std::function<v1::JoinReply(const v1::JoinRequest& request, const std::string& address)>;
[[nodiscard]] Status ServeJoin(OwnedFile socket, const std::vector<Credentials>& own,
                               std::chrono::steady_clock::time_point deadline,
                               const JoinHandler& handler);

}  // namespace ringmaster::pki
