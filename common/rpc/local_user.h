// Which user of this host is behind a connection: of a Unix socket the kernel says it itself, of
// loopback TCP it is the owner of the socket at the other end (sock_diag(7)). Free functions,
// thread-safe.
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

#include "common/status.h"

namespace ringmaster {

struct LocalUser {
  uid_t uid = 0;
  std::vector<gid_t> groups;  // of a Unix socket's peer; of TCP they are not known
};

// Of a connected stream socket, AF_UNIX or TCP. Nobody: its peer is on another host, or at least
// not on loopback. UNAUTHENTICATED: it is on loopback, and nobody holds that socket open any more;
// UNAVAILABLE: the kernel does not say, and why.
[[nodiscard]] StatusOr<std::optional<LocalUser>> UserBehind(int file);

// Root, who this process runs as, and members of `group` where there is one.
[[nodiscard]] bool IsOwn(const LocalUser& user, std::optional<gid_t> group);

// The number of a group of this host. NOT_FOUND.
[[nodiscard]] StatusOr<gid_t> GroupNamed(const std::string& name);

}  // namespace ringmaster
