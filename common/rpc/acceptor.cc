#include "common/rpc/acceptor.h"

#include <arpa/inet.h>
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

constexpr size_t kMaxRequest = 1'024;  // of who asks for a door
constexpr char kTlsHandshake = 0x16;
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

// What connections are counted by: an IPv4 address, or the half of an IPv6 address that names a
// network.
std::string AddressOf(const sockaddr_storage& peer) {
  if (peer.ss_family == AF_UNIX) return "unix";
  if (peer.ss_family != AF_INET6) {
    const in_addr& v4 = reinterpret_cast<const sockaddr_in*>(&peer)->sin_addr;
    return {reinterpret_cast<const char*>(&v4), sizeof(v4)};
  }
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&peer)->sin6_addr;
  const auto* const bytes = reinterpret_cast<const char*>(&v6);
  return IN6_IS_ADDR_V4MAPPED(&v6) ? std::string(bytes + 12, 4) : std::string(bytes, 8);
}

std::string Shown(const sockaddr_storage& peer, socklen_t length) {
  if (peer.ss_family == AF_UNIX) return "the Unix socket";
  char host[NI_MAXHOST] = "?";
  (void)getnameinfo(reinterpret_cast<const sockaddr*>(&peer), length, host, sizeof(host), nullptr,
                    0, NI_NUMERICHOST);
  return host;
}

constexpr const char* kTableFull =
    "a connection was refused: the file table is full (ulimit -n, LimitNOFILE)";
// File numbers that connections leave to the process itself, of a table that strangers fill: gRPC
// ends a process that cannot have one for a call of its own.
constexpr rlim_t kOwnFiles = 32;

bool IsOwnFile(int file) {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return false;
  return static_cast<rlim_t>(file) + std::min(kOwnFiles, files.rlim_cur / 8) >= files.rlim_cur;
}

// How many connections there may be at most: other files need their half.
size_t RoomOf(size_t most) {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return most;
  return std::min<size_t>(most, files.rlim_cur / 2);
}

}  // namespace

std::string CountedAs(const sockaddr_storage& peer, socklen_t length) {
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&peer)->sin6_addr;
  if (peer.ss_family != AF_INET6 || IN6_IS_ADDR_V4MAPPED(&v6) || IN6_IS_ADDR_LOOPBACK(&v6)) {
    return Shown(peer, length);
  }
  in6_addr network = v6;
  std::fill(network.s6_addr + 8, network.s6_addr + 16, 0);
  char text[INET6_ADDRSTRLEN] = "?";
  (void)inet_ntop(AF_INET6, &network, text, sizeof(text));
  return fmt::format("{}/64", text);
}

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
  RING_ASSIGN_OR_RETURN(std::vector<OwnedFile> listeners,
                        ListenOn(listen, options.unacknowledged, &port));
  OwnedFile wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  OwnedFile reserve(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (wake.get() < 0 || reserve.get() < 0) return SystemError("no file descriptor");
  return std::unique_ptr<Acceptor>(
      new Acceptor(options, std::move(listeners), std::move(wake), std::move(reserve), port));
}

Acceptor::Acceptor(AcceptorOptions options, std::vector<OwnedFile> listeners, OwnedFile wake,
                   OwnedFile reserve, uint16_t port)
    : options_(std::move(options)),
      port_(port),
      wake_(std::move(wake)),
      reserve_(std::move(reserve)) {
  for (OwnedFile& file : listeners) listeners_.push_back({std::move(file), "", std::nullopt});
}

Acceptor::~Acceptor() { Stop(); }

Status Acceptor::ListenAt(const std::string& path, std::optional<gid_t> group) {
  RING_ASSIGN_OR_RETURN(OwnedFile file, ListenOn(path, group));
  listeners_.push_back({std::move(file), path, group});
  return absl::OkStatus();
}

void Acceptor::AddTo(grpc::ServerBuilder* builder, const ServerSecurity& security) {
  server_ = Connect(builder, security);
}

void Acceptor::AddDoor(const std::string& name, grpc::ServerBuilder* builder,
                       const ServerSecurity& security) {
  doors_[name] = Connect(builder, security);
}

void Acceptor::SetGreeted(std::string begins, Take take) {
  greeting_ = std::move(begins);
  take_ = std::move(take);
}

Acceptor::Server Acceptor::Connect(grpc::ServerBuilder* builder,
                                   const ServerSecurity& security) const {
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              static_cast<int>(options_.handshake.count()));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                              static_cast<int>(options_.idle.count()));
  Server server;
  server.plain =
      builder->experimental().AddExternalConnectionAcceptor(Type::FROM_FD, security.plain);
  if (security.tls != nullptr) {
    server.tls = builder->experimental().AddExternalConnectionAcceptor(Type::FROM_FD, security.tls);
  }
  return server;
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
  for (const Listener& listener : listeners_) {
    if (!listener.path.empty()) (void)unlink(listener.path.c_str());
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
    for (const Listener& listener : listeners_) {
      if (!pause) waits.push_back({listener.file.get(), POLLIN, 0});
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

// HTTP/2 begins with PRI, TLS with the byte of a handshake: neither like a request or a greeting.
Acceptor::Heard Acceptor::Hear(Visitor* visitor) {
  if (!visitor->said.empty()) {
    return visitor->said[0] == kRequest[0] ? HearRequest(visitor) : HearGreeting(visitor);
  }
  char first = 0;
  const ssize_t count = recv(visitor->file.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return Heard::kNothingYet;
  if (count <= 0) return Heard::kDone;
  if (first == kTlsHandshake && visitor->server->tls != nullptr) {
    HandOver(std::move(visitor->file), visitor->server->tls.get());
    return Heard::kDone;
  }
  if (first == kRequest[0] && !doors_.empty() && visitor->server == &server_) {
    return HearRequest(visitor);
  }
  if (!greeting_.empty() && first == greeting_[0]) return HearGreeting(visitor);
  if (visitor->refusal.empty()) {
    HandOver(std::move(visitor->file), visitor->server->plain.get());
  } else {
    Refuse(visitor->file.get(), visitor->address, visitor->refusal);
  }
  return Heard::kDone;
}

Acceptor::Heard Acceptor::HearRequest(Visitor* visitor) {
  char bytes[kMaxRequest];
  const ssize_t count =
      recv(visitor->file.get(), bytes, sizeof(bytes) - visitor->said.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return Heard::kNothingYet;
  if (count <= 0) return Heard::kDone;
  visitor->said.append(bytes, static_cast<size_t>(count));
  if (visitor->said.ends_with("\r\n\r\n")) return Open(visitor);
  return visitor->said.size() < kMaxRequest ? Heard::kNothingYet : Heard::kDone;
}

// Not a byte more than the line: what follows is whoever takes it to read.
Acceptor::Heard Acceptor::HearGreeting(Visitor* visitor) {
  char bytes[kMaxRequest];
  const size_t missing = greeting_.size() - visitor->said.size();
  const ssize_t count =
      recv(visitor->file.get(), bytes, std::min(missing, sizeof(bytes)), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return Heard::kNothingYet;
  if (count <= 0) return Heard::kDone;
  visitor->said.append(bytes, static_cast<size_t>(count));
  if (!greeting_.starts_with(visitor->said)) return Heard::kDone;
  if (visitor->said.size() < greeting_.size()) return Heard::kNothingYet;
  take_(std::move(visitor->file), visitor->counted);
  return Heard::kDone;
}

// Behind its door a connection begins once more, with TLS or without.
Acceptor::Heard Acceptor::Open(Visitor* visitor) {
  const std::string said = std::exchange(visitor->said, "");
  const size_t begin = std::strlen(kRequest);
  const size_t end = said.find(' ', begin);
  const bool asks = said.starts_with(kRequest) && end != std::string::npos;
  const auto door = asks ? doors_.find(said.substr(begin, end - begin)) : doors_.end();
  if (door == doors_.end()) {
    Say(visitor->file.get(), kNoDoor);
    return Heard::kDone;
  }
  Say(visitor->file.get(), kOpened);
  visitor->server = &door->second;
  return Heard::kNothingYet;
}

void Acceptor::Refuse(int connection, const std::string& address, const std::string& refusal) {
  Warn(fmt::format("a connection from {} was refused: {}", address, refusal));
  // gRPC's clients take that for a failure to connect, and wait before the next try; RefusalAt and
  // everybody who looks by hand read the words.
  Say(connection, fmt::format("{}{}\n", kForbidden, refusal).c_str());
}

bool Acceptor::AcceptAll(const Listener& listener) {
  // Not for ever: Stop and other listeners want their turn.
  for (int i = 0; i < SOMAXCONN; ++i) {
    sockaddr_storage peer = {};
    socklen_t length = sizeof(peer);
    OwnedFile connection(accept4(listener.file.get(), reinterpret_cast<sockaddr*>(&peer), &length,
                                 SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (connection.get() >= 0) {
      Admit(std::move(connection), listener, peer, length);
      continue;
    }
    if (errno == EAGAIN) return true;
    if (errno == EMFILE || errno == ENFILE) {
      if (TurnAway(listener.file)) continue;
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
  Warn(kTableFull);
  reserve_.Close();
  // Another thread may have been quicker; then there is none to close.
  OwnedFile connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const bool done = connection.get() >= 0 || errno == EAGAIN;
  connection.Close();
  reserve_ = OwnedFile(open("/dev/null", O_RDONLY | O_CLOEXEC));
  return done && reserve_.get() >= 0;
}

void Acceptor::Admit(OwnedFile connection, const Listener& listener, const sockaddr_storage& peer,
                     socklen_t length) {
  const std::string address = AddressOf(peer);
  const std::string shown = Shown(peer, length);
  if (IsOwnFile(connection.get())) return Warn(kTableFull);
  if (connections_.Of(address) >= options_.most_per_address) {
    Warn(fmt::format("a connection was refused: {} has {} already", shown,
                     options_.most_per_address));
    return;
  }
  // However many others there are, this host's own user can look, and end what goes on.
  const size_t all = RoomOf(options_.most);
  const size_t room = peer.ss_family == AF_UNIX ? all : all - all / 16;
  if (connections_.known() >= room && connections_.All() >= room) {
    Warn(fmt::format("a connection was refused: there are {} already", room));
    return;
  }
  std::string refusal = RefusalOf(connection.get(), listener);
  const bool plain_alone = server_.tls == nullptr && greeting_.empty();
  if (plain_alone && !refusal.empty()) return Refuse(connection.get(), shown, refusal);
  connections_.Add(connection.get(), address);
  if (plain_alone && doors_.empty()) return HandOver(std::move(connection), server_.plain.get());
  visitors_.push_back({std::move(connection), Clock::now() + options_.handshake, shown,
                       CountedAs(peer, length), std::move(refusal), &server_, ""});
}

std::string Acceptor::RefusalOf(int connection, const Listener& listener) const {
  const StatusOr<std::optional<LocalUser>> user = UserBehind(connection);
  if (!user.ok()) return Message(user.status());
  if (!*user) return "without TLS this port takes connections of its own host alone";
  if (IsOwn(**user, listener.group)) return "";
  return fmt::format("uid {} is neither root nor who this daemon runs as (uid {}){}{}",
                     (*user)->uid, geteuid(), options_.instead.empty() ? "" : "; ",
                     options_.instead);
}

std::optional<std::string> SeldomLine::Next(const std::string& what, Time now) {
  if (said_ && now - *said_ < kInterval) {
    ++unsaid_;
    return std::nullopt;
  }
  said_ = now;
  const uint64_t unsaid = std::exchange(unsaid_, 0);
  return unsaid == 0 ? what : fmt::format("{} (and {} like it before)", what, unsaid);
}

void Acceptor::Warn(const std::string& what) {
  if (const auto line = warnings_.Next(what, Clock::now())) spdlog::warn("{}", *line);
}

}  // namespace ringmaster
