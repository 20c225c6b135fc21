#include "common/rpc/acceptor.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <stop_token>

namespace ringmaster {
namespace {

constexpr std::chrono::milliseconds kPause{100};  // after an error that is not of one connection
constexpr std::chrono::seconds kWarnInterval{10};

constexpr size_t kMaxRequest = 1'024;  // of who asks for a door
constexpr char kRequest[] = "CONNECT ";
constexpr char kOpened[] = "HTTP/1.1 200 OK\r\n\r\n";
constexpr char kNoDoor[] = "HTTP/1.1 404 Not Found\r\n\r\n";

// To a client that has sent little and reads: there is room.
void Say(int file, const char* words) {
  (void)!send(file, words, std::strlen(words), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void HandOver(OwnedFile file, grpc::experimental::ExternalConnectionAcceptor* server) {
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.fd = file.Release();
  server->HandleNewConnection(&parameters);
}

Status SystemError(const std::string& what) {
  return Error(absl::StatusCode::kUnavailable, "{}: {}", what, std::strerror(errno));
}

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

// A host that stands for all addresses means those of IPv6, too, where there is IPv6.
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
  return places;
}

StatusOr<OwnedFile> Bind(const Place& place, const AcceptorOptions& options) {
  const int family = place.address.ss_family;
  OwnedFile file(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (file.get() < 0) return SystemError("no socket");
  SetNumber(file.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (family == AF_INET6) {
    SetNumber(file.get(), IPPROTO_IPV6, IPV6_V6ONLY, place.dual_stack ? 0 : 1);
  }
  // Connections inherit both.
  SetNumber(file.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  SetNumber(file.get(), IPPROTO_TCP, TCP_USER_TIMEOUT,
            static_cast<int>(options.unacknowledged.count()));
  const auto* const address = reinterpret_cast<const sockaddr*>(&place.address);
  if (bind(file.get(), address, place.length) != 0) return SystemError("bind");
  if (listen(file.get(), SOMAXCONN) != 0) return SystemError("listen");
  return file;
}

// Sockets for all of a host's addresses, with the same port. A family that this host does not have
// is left out, as long as there is another.
StatusOr<std::vector<OwnedFile>> BindAll(const Address& listen, const AcceptorOptions& options,
                                         uint16_t* port) {
  RING_ASSIGN_OR_RETURN(std::vector<Place> places, PlacesOf(listen));
  if (listen.host == "0.0.0.0" || listen.host == "::") {
    Place& v4 = places.emplace_back();
    v4.address.ss_family = AF_INET;
    v4.length = sizeof(sockaddr_in);
  }
  std::vector<OwnedFile> files;
  Status refused = Error(absl::StatusCode::kUnavailable, "{} has no address", listen.host);
  *port = listen.port;
  for (Place& place : places) {
    *PortOf(&place.address) = htons(*port);
    StatusOr<OwnedFile> file = Bind(place, options);
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

// What connections are counted by: an IPv4 address, or the half of an IPv6 address that names a
// network.
std::string AddressOf(const sockaddr_storage& peer) {
  if (peer.ss_family != AF_INET6) {
    const in_addr& v4 = reinterpret_cast<const sockaddr_in*>(&peer)->sin_addr;
    return {reinterpret_cast<const char*>(&v4), sizeof(v4)};
  }
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&peer)->sin6_addr;
  const auto* const bytes = reinterpret_cast<const char*>(&v6);
  return IN6_IS_ADDR_V4MAPPED(&v6) ? std::string(bytes + 12, 4) : std::string(bytes, 8);
}

std::string Shown(const sockaddr_storage& peer, socklen_t length) {
  char host[NI_MAXHOST] = "?";
  (void)getnameinfo(reinterpret_cast<const sockaddr*>(&peer), length, host, sizeof(host), nullptr,
                    0, NI_NUMERICHOST);
  return host;
}

// How many connections there may be at most: other files need their half.
size_t RoomOf(size_t most) {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return most;
  return std::min<size_t>(most, files.rlim_cur / 2);
}

}  // namespace

void Connections::Add(int file, const std::string& address) {
  struct stat now = {};
  if (fstat(file, &now) != 0) return;
  // A number that comes again: gRPC has closed the one before.
  if (const auto old = sockets_.find(file); old != sockets_.end()) {
    std::erase(by_address_[old->second.address], file);
    if (by_address_[old->second.address].empty()) by_address_.erase(old->second.address);
  }
  sockets_[file] = {now.st_dev, now.st_ino, address};
  by_address_[address].push_back(file);
}

size_t Connections::Of(const std::string& address) {
  const auto files = by_address_.find(address);
  if (files == by_address_.end()) return 0;
  std::erase_if(files->second, [this](int file) {
    const Socket& socket = sockets_[file];
    struct stat now = {};
    const bool open =
        fstat(file, &now) == 0 && now.st_dev == socket.device && now.st_ino == socket.inode;
    if (!open) sockets_.erase(file);
    return !open;
  });
  const size_t open = files->second.size();
  if (open == 0) by_address_.erase(files);
  return open;
}

size_t Connections::All() {
  std::vector<std::string> addresses;
  for (const auto& [address, files] : by_address_) addresses.push_back(address);
  for (const std::string& address : addresses) (void)Of(address);
  return sockets_.size();
}

StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(const Address& listen,
                                                     AcceptorOptions options) {
  uint16_t port = 0;
  RING_ASSIGN_OR_RETURN(std::vector<OwnedFile> listeners, BindAll(listen, options, &port));
  OwnedFile wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  OwnedFile reserve(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (wake.get() < 0 || reserve.get() < 0) return SystemError("no file descriptor");
  return std::unique_ptr<Acceptor>(
      new Acceptor(options, std::move(listeners), std::move(wake), std::move(reserve), port));
}

Acceptor::Acceptor(AcceptorOptions options, std::vector<OwnedFile> listeners, OwnedFile wake,
                   OwnedFile reserve, uint16_t port)
    : options_(options),
      port_(port),
      wake_(std::move(wake)),
      listeners_(std::move(listeners)),
      reserve_(std::move(reserve)) {}

Acceptor::~Acceptor() { Stop(); }

void Acceptor::AddTo(grpc::ServerBuilder* builder,
                     std::shared_ptr<grpc::ServerCredentials> credentials) {
  server_ = Connect(builder, std::move(credentials));
}

void Acceptor::AddDoor(const std::string& name, grpc::ServerBuilder* builder,
                       std::shared_ptr<grpc::ServerCredentials> credentials) {
  doors_[name] = Connect(builder, std::move(credentials));
}

Acceptor::Server Acceptor::Connect(grpc::ServerBuilder* builder,
                                   std::shared_ptr<grpc::ServerCredentials> credentials) const {
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              static_cast<int>(options_.handshake.count()));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                              static_cast<int>(options_.idle.count()));
  return builder->experimental().AddExternalConnectionAcceptor(Type::FROM_FD,
                                                               std::move(credentials));
}

void Acceptor::Start() {
  if (const size_t room = RoomOf(options_.most); room < options_.most) {
    spdlog::warn(
        "at most {} connections, not {}: of the files that this process may open (ulimit -n, "
        "LimitNOFILE) they take at most half",
        room, options_.most);
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  pthread_setname_np(thread_.native_handle(), "accept");
}

void Acceptor::Stop() {
  if (thread_.joinable()) {
    thread_.request_stop();
    const uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof(one));
    thread_.join();
  }
  listeners_.clear();
}

void Acceptor::Run(const std::stop_token& stop) {
  bool pause = false;
  while (!stop.stop_requested()) {
    std::vector<pollfd> waits = {{wake_.get(), POLLIN, 0}};
    for (const Visitor& visitor : visitors_) waits.push_back({visitor.file.get(), POLLIN, 0});
    const size_t first = waits.size();
    // In a pause nobody is let in.
    for (const OwnedFile& listener : listeners_) {
      if (!pause) waits.push_back({listener.get(), POLLIN, 0});
    }
    const auto limit = pause ? kPause : std::chrono::milliseconds(1'000);
    const int ready = poll(waits.data(), waits.size(), static_cast<int>(limit.count()));
    HearAll(std::span(waits).subspan(1, first - 1));
    const bool listen = !std::exchange(pause, false) && ready > 0;
    for (size_t i = 0; listen && i < listeners_.size(); ++i) {
      if (waits[first + i].revents != 0 && !AcceptAll(listeners_[i])) pause = true;
    }
  }
  visitors_.clear();
}

void Acceptor::HearAll(std::span<const pollfd> polled) {
  const Clock::time_point now = Clock::now();
  auto visitor = visitors_.begin();
  for (const pollfd& file : polled) {
    const bool heard = file.revents != 0 && Hear(&*visitor) == Heard::kDone;
    const bool done = heard || visitor->until < now;
    visitor = done ? visitors_.erase(visitor) : std::next(visitor);
  }
}

// Nobody who speaks HTTP/2, or begins with a handshake of TLS, begins like a request for a door.
Acceptor::Heard Acceptor::Hear(Visitor* visitor) {
  const int file = visitor->file.get();
  char bytes[kMaxRequest];
  if (visitor->said.empty()) {
    const ssize_t count = recv(file, bytes, 1, MSG_PEEK | MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return Heard::kNothingYet;
    if (count <= 0) return Heard::kDone;
    if (bytes[0] != kRequest[0]) {
      HandOver(std::move(visitor->file), server_.get());
      return Heard::kDone;
    }
  }
  const ssize_t count = recv(file, bytes, sizeof(bytes) - visitor->said.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return Heard::kNothingYet;
  if (count <= 0) return Heard::kDone;
  visitor->said.append(bytes, static_cast<size_t>(count));
  if (visitor->said.ends_with("\r\n\r\n")) {
    Open(visitor);
    return Heard::kDone;
  }
  return visitor->said.size() < kMaxRequest ? Heard::kNothingYet : Heard::kDone;
}

void Acceptor::Open(Visitor* visitor) {
  const std::string& said = visitor->said;
  const size_t begin = std::strlen(kRequest);
  const size_t end = said.find(' ', begin);
  const bool asks = said.starts_with(kRequest) && end != std::string::npos;
  const auto door = asks ? doors_.find(said.substr(begin, end - begin)) : doors_.end();
  if (door == doors_.end()) {
    Say(visitor->file.get(), kNoDoor);
    return;
  }
  Say(visitor->file.get(), kOpened);
  HandOver(std::move(visitor->file), door->second.get());
}

bool Acceptor::AcceptAll(const OwnedFile& listener) {
  // Not for ever: Stop and other listeners want their turn.
  for (int i = 0; i < SOMAXCONN; ++i) {
    sockaddr_storage peer = {};
    socklen_t length = sizeof(peer);
    OwnedFile connection(accept4(listener.get(), reinterpret_cast<sockaddr*>(&peer), &length,
                                 SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (connection.get() >= 0) {
      const std::string address = AddressOf(peer);
      if (connections_.Of(address) >= options_.most_per_address) {
        Warn(fmt::format("a connection was refused: {} has {} already", Shown(peer, length),
                         options_.most_per_address));
      } else {
        Admit(std::move(connection), address);
      }
      continue;
    }
    if (errno == EAGAIN) return true;
    if (errno == EMFILE || errno == ENFILE) {
      if (TurnAway(listener)) continue;
      return false;
    }
    // Errors of a connection that is gone already are reported here, too: accept(2).
    const bool of_this_host = errno == ENOBUFS || errno == ENOMEM || errno == EBADF ||
                              errno == EINVAL || errno == ENOTSOCK || errno == EPERM;
    if (!of_this_host) continue;
    Warn(fmt::format("cannot accept a connection: {}", std::strerror(errno)));
    return false;
  }
  return true;
}

bool Acceptor::TurnAway(const OwnedFile& listener) {
  Warn("a connection was refused: the file table is full (ulimit -n, LimitNOFILE)");
  reserve_.Close();
  // Another thread may have been quicker; then there is none to close.
  OwnedFile connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const bool done = connection.get() >= 0 || errno == EAGAIN;
  connection.Close();
  reserve_ = OwnedFile(open("/dev/null", O_RDONLY | O_CLOEXEC));
  return done && reserve_.get() >= 0;
}

void Acceptor::Admit(OwnedFile connection, const std::string& address) {
  const size_t room = RoomOf(options_.most);
  if (connections_.known() >= room && connections_.All() >= room) {
    Warn(fmt::format("a connection was refused: there are {} already", room));
    return;
  }
  connections_.Add(connection.get(), address);
  if (doors_.empty()) {
    HandOver(std::move(connection), server_.get());
  } else {
    visitors_.push_back({std::move(connection), Clock::now() + options_.handshake, ""});
  }
}

void Acceptor::Warn(const std::string& what) {
  const Clock::time_point now = Clock::now();
  if (now - warned_ < kWarnInterval) {
    ++unsaid_;
    return;
  }
  warned_ = now;
  const uint64_t unsaid = std::exchange(unsaid_, 0);
  spdlog::warn("{}{}", what, unsaid == 0 ? "" : fmt::format(" (and {} like it before)", unsaid));
}

}  // namespace ringmaster
