#include "common/rpc/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ringmaster {
namespace {

void SetNumber(int file, int level, int option, int value) {
  // What cannot be set costs speed, not correctness.
  (void)setsockopt(file, level, option, &value, sizeof(value));
}

// One address to listen on.
struct Place {
  sockaddr_storage address = {};
  socklen_t length = 0;
  bool dual_stack = false;  // [::] for IPv4, too
};

uint16_t* PortOf(sockaddr_storage* address) {
  return address->ss_family == AF_INET6 ? &reinterpret_cast<sockaddr_in6*>(address)->sin6_port
                                        : &reinterpret_cast<sockaddr_in*>(address)->sin_port;
}

StatusOr<std::vector<Place>> PlacesOf(const Address& listen) {
  const bool any = listen.host == "0.0.0.0" || listen.host == "::";
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(listen.port);
  const int error = getaddrinfo(any ? "::" : listen.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return Error(absl::StatusCode::kUnavailable, "{}: {}", listen.host, gai_strerror(error));
  }
  std::vector<Place> places;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Place& place = places.emplace_back();
    std::memcpy(&place.address, one->ai_addr, one->ai_addrlen);
    place.length = one->ai_addrlen;
    place.dual_stack = any;
  }
  freeaddrinfo(found);
  if (any) {
    Place& v4 = places.emplace_back();
    v4.address.ss_family = AF_INET;
    v4.length = sizeof(sockaddr_in);
  }
  return places;
}

StatusOr<OwnedFile> Bind(const Place& place, std::chrono::milliseconds unacknowledged) {
  const int family = place.address.ss_family;
  OwnedFile file(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (file.get() < 0) return SystemError("no socket");
  SetNumber(file.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (family == AF_INET6) {
    SetNumber(file.get(), IPPROTO_IPV6, IPV6_V6ONLY, place.dual_stack ? 0 : 1);
  }
  // Connections inherit both.
  SetNumber(file.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  SetNumber(file.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(unacknowledged.count()));
  const auto* const address = reinterpret_cast<const sockaddr*>(&place.address);
  if (bind(file.get(), address, place.length) != 0) return SystemError("bind");
  if (listen(file.get(), SOMAXCONN) != 0) return SystemError("listen");
  return file;
}

StatusOr<OwnedFile> UnixSocket() {
  OwnedFile file(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (file.get() < 0) return SystemError("no socket");
  return file;
}

// A socket file outlives its process; nobody answers behind it then.
Status RemoveLeftover(const std::string& path, const sockaddr_un& address) {
  struct stat there = {};
  if (lstat(path.c_str(), &there) != 0) return absl::OkStatus();
  if (!S_ISSOCK(there.st_mode)) {
    return Error(absl::StatusCode::kUnavailable, "there is something else, which is no socket");
  }
  RING_ASSIGN_OR_RETURN(const OwnedFile probe, UnixSocket());
  const int connected =
      connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  if (connected == 0 || errno == EAGAIN) {
    return Error(absl::StatusCode::kUnavailable, "another process listens there");
  }
  if (errno != ECONNREFUSED && errno != ENOENT) return SystemError("connect");
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return SystemError("unlink");
  return absl::OkStatus();
}

}  // namespace

Status SystemError(const std::string& what) {
  return Error(absl::StatusCode::kUnavailable, "{}: {}", what, std::strerror(errno));
}

StatusOr<std::vector<OwnedFile>> ListenOn(const Address& listen,
                                          std::chrono::milliseconds unacknowledged,
                                          uint16_t* port) {
  RING_ASSIGN_OR_RETURN(std::vector<Place> places, PlacesOf(listen));
  std::vector<OwnedFile> files;
  Status refused = Error(absl::StatusCode::kUnavailable, "{} has no address", listen.host);
  *port = listen.port;
  for (Place& place : places) {
    *PortOf(&place.address) = htons(*port);
    StatusOr<OwnedFile> file = Bind(place, unacknowledged);
    if (!file.ok()) {
      const bool missing = errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT;
      if (!missing) return file.status();
      refused = file.status();
      continue;
    }
    Place bound;
    bound.length = sizeof(bound.address);
    if (getsockname(file->get(), reinterpret_cast<sockaddr*>(&bound.address), &bound.length) != 0) {
      return SystemError("getsockname");
    }
    *port = ntohs(*PortOf(&bound.address));
    files.push_back(*std::move(file));
    if (place.dual_stack) break;  // that is everything
  }
  if (files.empty()) return refused;
  return files;
}

StatusOr<OwnedFile> ListenOn(const std::string& path, std::optional<gid_t> group) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return Error(absl::StatusCode::kUnavailable,
                 "the path of a Unix socket has 1 to {} bytes, not {}",
                 sizeof(address.sun_path) - 1, path.size());
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  RING_RETURN_IF_ERROR(RemoveLeftover(path, address));
  RING_ASSIGN_OR_RETURN(OwnedFile file, UnixSocket());
  if (bind(file.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return SystemError("bind");
  }
  // Nobody connects before listen(). A file of the right group needs no right to change it, which
  // the package's unit does not have.
  struct stat made = {};
  if (stat(path.c_str(), &made) != 0) return SystemError("stat");
  if (group && made.st_gid != *group && chown(path.c_str(), made.st_uid, *group) != 0) {
    return SystemError("chown to its group");
  }
  if (chmod(path.c_str(), group ? 0660 : 0600) != 0) return SystemError("chmod");
  if (listen(file.get(), SOMAXCONN) != 0) return SystemError("listen");
  return file;
}

}  // namespace ringmaster
