#include "common/net/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>
#include <memory>

#include "common/text.h"

namespace ringmaster {
namespace {

constexpr size_t kMaxShownBytes = 100;
constexpr size_t kMaxNameBytes = 253;  // of a DNS name, and of one label: RFC 1035, 2.3.4
constexpr size_t kMaxLabelBytes = 63;
constexpr size_t kMaxTextBytes = kMaxNameBytes + 8;
constexpr size_t kMaxSocketPath = sizeof(sockaddr_un::sun_path) - 1;

Status Bad(const std::string& text, const std::string& what, const std::string& why) {
  return InvalidArgument("{} {}: {}; expected HOST:PORT, for example 127.0.0.1:7700", what,
                         OneLine(text, kMaxShownBytes), why);
}

// Why nobody is to connect to it; empty when everything is right. `ip` in network order.
std::string RefusalOf(const std::array<uint8_t, 4>& ip) {
  if (ip[0] == 169 && ip[1] == 254) return "a link-local address is no worker's";
  if (ip[0] == 0) return "the unspecified address is no worker's";
  if (ip[0] >= 224) return "a multicast or reserved address is no worker's";
  return "";
}

std::string RefusalOf(const std::array<uint8_t, 16>& ip) {
  if (ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80) return "a link-local address is no worker's";
  if (ip[0] == 0xff) return "a multicast address is no worker's";
  // An IPv4 address in the clothes of IPv6, whose host it reaches: ::a.b.c.d, ::ffff:a.b.c.d (RFC
  // 4291, 2.5.5), 64:ff9b::a.b.c.d (RFC 6052). :: and ::1 have the form of the first.
  static constexpr std::array<std::array<uint8_t, 12>, 3> kPrefixes = {
      {{}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, {0, 0x64, 0xff, 0x9b}}};
  static constexpr std::array<uint8_t, 16> kLoopback = {0, 0, 0, 0, 0, 0, 0, 0,
                                                        0, 0, 0, 0, 0, 0, 0, 1};
  for (const auto& prefix : kPrefixes) {
    if (ip == kLoopback || !std::equal(prefix.begin(), prefix.end(), ip.begin())) continue;
    return RefusalOf(std::array<uint8_t, 4>{ip[12], ip[13], ip[14], ip[15]});
  }
  return "";
}

bool IsLabel(const std::string& label) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; };
  return !label.empty() && label.size() <= kMaxLabelBytes && label.front() != '-' &&
         label.back() != '-' && std::all_of(label.begin(), label.end(), allowed);
}

// Whether the resolver could take a name that ends in it for a number (2852039166, 0xa9fea9fe,
// 169.254.43518 are all 169.254.169.254 to getaddrinfo).
bool IsNumeric(const std::string& label) {
  const bool hex = label.starts_with("0x") || label.starts_with("0X");
  return hex ||
         std::all_of(label.begin(), label.end(), [](unsigned char c) { return std::isdigit(c); });
}

std::string RefusalOfName(std::string name) {
  if (name.ends_with('.')) name.pop_back();  // the root's own, empty label
  bool good = name.size() <= kMaxNameBytes;
  std::string label;
  for (size_t at = 0; good && at <= name.size(); at += label.size() + 1) {
    label = name.substr(at, std::min(name.find('.', at), name.size()) - at);
    good = IsLabel(label);
  }
  return good && !IsNumeric(label) ? "" : "the host is neither a numeric address nor a DNS name";
}

std::string RefusalOfHost(const std::string& host) {
  std::array<uint8_t, 4> v4 = {};
  if (inet_pton(AF_INET, host.c_str(), v4.data()) == 1) return RefusalOf(v4);
  if (host.find(':') == std::string::npos) return RefusalOfName(host);
  std::array<uint8_t, 16> v6 = {};
  if (inet_pton(AF_INET6, host.c_str(), v6.data()) == 1) return RefusalOf(v6);
  return "the host is not an IPv6 address";
}

}  // namespace

std::string Address::ToString() const {
  if (IsUnix(*this)) return host;
  if (host.find(':') != std::string::npos) return fmt::format("[{}]:{}", host, port);
  return fmt::format("{}:{}", host, port);
}

std::string Address::Target() const {
  if (IsUnix(*this)) return host;
  // Brackets stand in no path of a URI but encoded.
  if (host.find(':') != std::string::npos) return fmt::format("dns:///%5B{}%5D:{}", host, port);
  return "dns:///" + ToString();
}

StatusOr<Address> ParseAddress(const std::string& text, const std::string& what) {
  const auto bad = [&](const char* why) { return Bad(text, what, why); };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return bad("there is no port");
  std::string host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    return bad("an IPv6 address needs brackets");
  }
  if (host.empty()) return bad("there is no host");
  if (host.starts_with(kUnixScheme)) return bad("a Unix socket has neither brackets nor a port");
  unsigned port = 0;
  const char* const first = text.data() + colon + 1;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(first, last, port);
  if (error != std::errc() || end != last || port > 65535) {
    return bad("the port is not a number from 0 to 65535");
  }
  return Address{host, static_cast<uint16_t>(port)};
}

StatusOr<Address> ParseCoordinator(const std::string& text, const std::string& what) {
  if (!text.starts_with(kUnixScheme)) return ParseAddress(text, what);
  const size_t bytes = text.size() - std::strlen(kUnixScheme);
  if (bytes == 0) return InvalidArgument("{} {}: there is no path; expected unix:PATH", what, text);
  if (bytes > kMaxSocketPath || text.find('\0') != std::string::npos) {
    return InvalidArgument(
        "{} {}: the path of a Unix socket has at most {} bytes, none of them zero; a symbolic link "
        "to its folder makes it shorter",
        what, OneLine(text, kMaxTextBytes), kMaxSocketPath);
  }
  return Address{text, 0};
}

StatusOr<Address> ParsePeerAddress(const std::string& text, const std::string& what) {
  if (text.empty()) return InvalidArgument("{} is missing; expected HOST:PORT", what);
  if (text.size() > kMaxTextBytes) {
    return Bad(text, what, fmt::format("it has more than {} bytes", kMaxTextBytes));
  }
  // inet_pton stops there, a resolver may not.
  if (text.find('\0') != std::string::npos) return Bad(text, what, "it contains a zero byte");
  RING_ASSIGN_OR_RETURN(const Address address, ParseAddress(text, what));
  if (address.port == 0) return Bad(text, what, "nobody can connect to port 0");
  const std::string refusal = RefusalOfHost(address.host);
  return refusal.empty() ? StatusOr<Address>(address) : Bad(text, what, refusal);
}

std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string InterfaceOf(const std::string& host) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> held(all, &freeifaddrs);
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    const sockaddr* const address = each->ifa_addr;
    const bool v6 = address != nullptr && address->sa_family == AF_INET6;
    if (address == nullptr || (!v6 && address->sa_family != AF_INET)) continue;
    const void* const bytes =
        v6 ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr)
           : &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (inet_ntop(address->sa_family, bytes, text.data(), text.size()) != nullptr &&
        host == text.data()) {
      return each->ifa_name;
    }
  }
  return "";
}

bool IsLoopback(const std::string& host) {
  // A name like 127.example.org is no loopback address: only a whole IPv4 address counts.
  in_addr v4 = {};
  return host == "localhost" || host == "::1" || host.starts_with(kUnixScheme) ||
         (host.starts_with("127.") && inet_pton(AF_INET, host.c_str(), &v4) == 1);
}

}  // namespace ringmaster
