// Who this worker is: host and incarnation, and in a cluster with TLS the certificate that names
// it, which it gets with a token (--join) and keeps in its state folder. Thread-safe (free
// functions).
#pragma once

#include <chrono>
#include <string>

#include "common/rpc/acceptor.h"
#include "common/rpc/channel.h"
#include "common/status.h"
#include "worker/backend/backend.h"
#include "worker/flags.h"

namespace ringmaster::worker {

// What moves its bits, as it tells it a coordinator.
[[nodiscard]] v1::NumericsClass NumericsOf(const Backend& backend, uint32_t threads_per_core);

// How this worker's connections are made and taken.
struct Security {
  std::string folder;  // of its credentials; empty: it has none
  Dialer dialer;
  ServerSecurity server;
};

// Joins with the token of `flags`, where there is one that this worker did not join with before:
// within `limit`, again and again while nobody answers; the token is wiped. A certificate that
// ended is renewed in the same way. Then settles what depends on it, in `flags`: the name, which is
// the certificate's; the address to listen on, where none was given, that reaches the coordinator.
// The state folder is there. FAILED_PRECONDITION: an address that is not loopback, and neither a
// certificate nor a token; a --name that is not the certificate's; a certificate that no peer would
// take, and what to do. Errors of pki::Join and pki::Renew.
[[nodiscard]] StatusOr<Security> SecurityOf(Flags* flags, std::chrono::milliseconds limit);

}  // namespace ringmaster::worker
