// HOST:PORT addresses, and Unix sockets: of flags, and those that peers give each other. Pure;
// thread-safe (free functions).
#pragma once

#include <cstdint>
#include <string>

#include "common/status.h"

namespace ringmaster {

struct Address {
  std::string host;  // without brackets
  uint16_t port = 0;
  // `host:port`, an IPv6 host in brackets.
  [[nodiscard]] std::string ToString() const;
  // What gRPC is to connect to. With its scheme, because a host could be called `unix` or `dns`.
  [[nodiscard]] std::string Target() const;
};

// A Unix socket as an address: `unix:PATH`, which is all of `host`.
inline constexpr char kUnixScheme[] = "unix:";
[[nodiscard]] inline bool IsUnix(const Address& address) {
  return address.host.starts_with(kUnixScheme);
}

// Accepts `host:port` and `[v6]:port`; `what` names the flag or field in the error.
[[nodiscard]] StatusOr<Address> ParseAddress(const std::string& text, const std::string& what);
// Of a coordinator: that, or `unix:PATH`.
[[nodiscard]] StatusOr<Address> ParseCoordinator(const std::string& text, const std::string& what);
// Of a peer whom others connect to, and who may be anybody: a port that is not 0, and a numeric
// address or a DNS name. No scheme, and nothing that can only be meant for something else than a
// worker: link-local (a cloud's metadata service), multicast, the unspecified address.
[[nodiscard]] StatusOr<Address> ParsePeerAddress(const std::string& text, const std::string& what);

// This host's name, as gethostname gives it; empty when it has none.
[[nodiscard]] std::string HostName();

// The network interface of this host that has this numeric address: eth0. Empty: none has it.
[[nodiscard]] std::string InterfaceOf(const std::string& host);

// 127.0.0.0/8, ::1 and localhost; and Unix sockets, which are of this host, too.
[[nodiscard]] bool IsLoopback(const std::string& host);

}  // namespace ringmaster
