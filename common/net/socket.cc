#include "common/net/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>

namespace ringmaster {
namespace {

using std::chrono::steady_clock;

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

StatusOr<OwnedFile> ConnectToOne(const addrinfo& place, steady_clock::time_point until) {
  const std::string shown = NumericHost(place.ai_addr, place.ai_addrlen);
  const auto failed = [&shown](int error) {
    return Error(absl::StatusCode::kUnavailable, "{}: {}", shown, std::strerror(error));
  };
  OwnedFile file(socket(place.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (file.get() < 0) return failed(errno);
  // What is written in two pieces would wait for the first one's ACK.
  const int at_once = 1;
  (void)setsockopt(file.get(), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once));
  if (connect(file.get(), place.ai_addr, place.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return failed(errno);
    if (!AwaitSocket(file.get(), POLLOUT, until, shown).ok()) {
      return Error(absl::StatusCode::kUnavailable,
                   "{}: nothing answers, as behind a firewall that drops", shown);
    }
    int error = 0;
    socklen_t length = sizeof(error);
    if (getsockopt(file.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    if (error != 0) return failed(error);
  }
  return file;
}

// A Unix socket takes a connection at once, or has no room.
StatusOr<OwnedFile> ConnectToPath(const std::string& path) {
  sockaddr_un place = {};
  place.sun_family = AF_UNIX;
  if (path.size() >= sizeof(place.sun_path)) return InvalidArgument("{} is too long", path);
  std::memcpy(place.sun_path, path.data(), path.size());
  OwnedFile file(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (file.get() >= 0 &&
      connect(file.get(), reinterpret_cast<const sockaddr*>(&place), sizeof(place)) == 0) {
    return file;
  }
  return Error(absl::StatusCode::kUnavailable, "{}: {}", path, std::strerror(errno));
}

}  // namespace

std::string NumericHost(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST] = "?";
  (void)getnameinfo(address, length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  return host;
}

Status AwaitSocket(int socket, short events, steady_clock::time_point deadline,
                   const std::string& what) {
  pollfd wait = {socket, events, 0};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now());
    const int ready =
        left.count() <= 0
            ? 0
            : poll(&wait, 1, static_cast<int>(std::min<int64_t>(left.count(), 60'000)));
    if (ready > 0) return absl::OkStatus();
    if (left.count() <= 0) {
      return Error(absl::StatusCode::kDeadlineExceeded, "{} took too long", what);
    }
  }
}

StatusOr<OwnedFile> ConnectTo(const Address& address, steady_clock::time_point deadline) {
  if (IsUnix(address)) return ConnectToPath(address.host.substr(std::strlen(kUnixScheme)));
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(address.port);
  const int error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &list);
  const std::unique_ptr<addrinfo, FreeAddresses> found(list);
  if (error != 0) return Error(absl::StatusCode::kUnavailable, "{}", gai_strerror(error));
  int left = 0;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) ++left;
  std::string why;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next, --left) {
    const steady_clock::time_point now = steady_clock::now();
    StatusOr<OwnedFile> file = ConnectToOne(*one, now + (deadline - now) / left);
    if (file.ok()) return file;
    why += (why.empty() ? "" : "; ") + Message(file.status());
  }
  return Error(absl::StatusCode::kUnavailable, "{}", why);
}

}  // namespace ringmaster
