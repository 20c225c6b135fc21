#include "common/rpc/address.h"

#include <arpa/inet.h>

#include <charconv>

namespace ringmaster {

std::string Address::ToString() const {
  if (host.find(':') != std::string::npos) return fmt::format("[{}]:{}", host, port);
  return fmt::format("{}:{}", host, port);
}

StatusOr<Address> ParseAddress(const std::string& text, const std::string& what) {
  const auto bad = [&](const char* why) {
    return InvalidArgument("{} {}: {}; expected HOST:PORT, for example 127.0.0.1:7700", what, text,
                           why);
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return bad("there is no port");
  std::string host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    return bad("an IPv6 address needs brackets");
  }
  if (host.empty()) return bad("there is no host");
  unsigned port = 0;
  const char* const first = text.data() + colon + 1;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(first, last, port);
  if (error != std::errc() || end != last || port > 65535) {
    return bad("the port is not a number from 0 to 65535");
  }
  return Address{host, static_cast<uint16_t>(port)};
}

bool IsLoopback(const std::string& host) {
  // A name like 127.example.org is no loopback address: only a whole IPv4 address counts.
  in_addr v4 = {};
  return host == "localhost" || host == "::1" ||
         (host.starts_with("127.") && inet_pton(AF_INET, host.c_str(), &v4) == 1);
}

Status CheckBind(const Address& listen, InsecureBind insecure) {
  if (IsLoopback(listen.host) || insecure == InsecureBind::kAllow) return absl::OkStatus();
  return FailedPrecondition(
      "--listen {} is not a loopback address and there is no TLS yet: anyone who reaches this port "
      "could use it; listen on 127.0.0.1, or pass --insecure on a network that you trust",
      listen.ToString());
}

}  // namespace ringmaster
