// Sockets of our own, beside gRPC's: connecting to a host, and waiting, both until a deadline, in
// the calling thread. Thread-safe (free functions).
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <string>

#include "common/files.h"
#include "common/net/address.h"
#include "common/status.h"

namespace ringmaster {

// The numeric host of an address; `?` where it has none.
[[nodiscard]] std::string NumericHost(const sockaddr* address, socklen_t length);

// Waits until `events` (poll.h) of a socket or the deadline. DEADLINE_EXCEEDED: `what` took too
// long.
[[nodiscard]] Status AwaitSocket(int socket, short events,
                                 std::chrono::steady_clock::time_point deadline,
                                 const std::string& what);

// Over TCP, to one of the host's addresses after the other, or to a Unix socket's path; each has an
// equal part of the time that is left. The socket does not block, and delays nothing that is
// written. Resolving a name is not bounded by the deadline, but by resolv.conf. UNAVAILABLE: why,
// for each address.
[[nodiscard]] StatusOr<OwnedFile> ConnectTo(const Address& address,
                                            std::chrono::steady_clock::time_point deadline);

}  // namespace ringmaster
