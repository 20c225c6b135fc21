// HOST:PORT addresses of --listen, --advertise and --coordinator. Thread-safe (free functions).
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
};

// Accepts `host:port` and `[v6]:port`; `what` names the flag in the error.
[[nodiscard]] StatusOr<Address> ParseAddress(const std::string& text, const std::string& what);

// 127.0.0.0/8, ::1 and localhost.
[[nodiscard]] bool IsLoopback(const std::string& host);

// Without TLS only loopback may be listened on, unless the user said --insecure.
enum class InsecureBind { kRefuse, kAllow };
[[nodiscard]] Status CheckBind(const Address& listen, InsecureBind insecure);

}  // namespace ringmaster
