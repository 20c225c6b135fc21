// Sockets that listen: TCP addresses of this host, and a Unix socket. Free functions, thread-safe.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/files.h"
#include "common/net/address.h"
#include "common/status.h"

namespace ringmaster {

// UNAVAILABLE: `what` failed, and errno's words.
[[nodiscard]] Status SystemError(const std::string& what);

// Binds every address of `listen`, all to the same port: where that is 0, one that the system
// picks. A host that stands for all addresses means those of IPv6, too, where there is IPv6; of
// others, a family that this host does not have is left out. Connections end after bytes that
// nobody acknowledged for `unacknowledged` (TCP_USER_TIMEOUT). UNAVAILABLE: which cannot be bound,
// and why.
[[nodiscard]] StatusOr<std::vector<OwnedFile>> ListenOn(const Address& listen,
                                                        std::chrono::milliseconds unacknowledged,
                                                        uint16_t* port);

// Makes a socket file that this user alone may connect to (0600), and where one is given the
// members of `group`, too (0660). One that was left behind by a process that is over is replaced.
// UNAVAILABLE: another process listens there, it is no socket, its path is too long for one (107
// bytes), or the folder may not be written to.
[[nodiscard]] StatusOr<OwnedFile> ListenOn(const std::string& path, std::optional<gid_t> group);

}  // namespace ringmaster
