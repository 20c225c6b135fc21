// The accept loop in front of gRPC servers: it listens, bounds connections, lets in who may be, and
// hands each connection to its server as a file descriptor. gRPC 1.51 itself never accepts again
// once the file table was full (CVE-2023-4785), bounds no connections, and does not say which user
// is behind one. Owned by whoever owns the servers; thread "accept" accepts, and reads how a
// connection begins; everything else is its owner's thread. It knows no calls.
#pragma once

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/files.h"
#include "common/net/address.h"
#include "common/rpc/listener.h"
#include "common/rpc/local_user.h"
#include "common/status.h"

namespace ringmaster {

// What whoever is refused reads, before the words.
inline constexpr char kForbidden[] = "HTTP/1.1 403 Forbidden\r\ncontent-type: text/plain\r\n\r\n";

struct AcceptorOptions {
  // What others of this host can do instead, for the refusal: `connect to unix:...`.
  std::string instead;
  // Connections at a time, in all and from one address (an IPv6 host is its /64); one more is
  // closed at once. Never more in all than half of the files that this process may open; one in 16
  // is for Unix sockets.
  size_t most = 1'024;
  size_t most_per_address = 256;
  // Until a client's HTTP/2 settings are there.
  std::chrono::milliseconds handshake{5'000};
  // Of a connection without a call, be it that none was made yet or that all have ended. A standard
  // client connects again by itself for its next one.
  std::chrono::milliseconds idle{60'000};
  // After which bytes that nobody acknowledges end a connection (TCP_USER_TIMEOUT).
  std::chrono::milliseconds unacknowledged{10'000};
};

// Who is connected, by file descriptor and by address. gRPC does not say when it closes one, so
// whether it is still that socket is asked of the kernel. Thread-compatible.
class Connections {
 public:
  void Add(int file, const std::string& address);
  // Those that are open, of one address and in all; closed ones are forgotten.
  [[nodiscard]] size_t Of(const std::string& address);
  [[nodiscard]] size_t All();
  // At least as many as All, without asking.
  [[nodiscard]] size_t known() const { return sockets_.size(); }

 private:
  struct Socket {
    uint64_t device = 0, inode = 0;  // no other socket gets the same while this one is open
    std::string address;
  };
  std::map<int, Socket> sockets_;
  std::map<std::string, std::vector<int>> by_address_;
};

// How a server's connections are secured, by how they begin. `tls` is null where there is none.
struct ServerSecurity {
  std::shared_ptr<grpc::ServerCredentials> plain = grpc::InsecureServerCredentials();
  std::shared_ptr<grpc::ServerCredentials> tls;
};

// Lines that strangers can cause at will: one every 10 s, with how many there were meanwhile. A
// value; thread-compatible.
class SeldomLine {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kInterval{10};

  // What is to be logged now; nullopt: nothing.
  [[nodiscard]] std::optional<std::string> Next(const std::string& what, Time now);

 private:
  std::optional<Time> said_;
  uint64_t unsaid_ = 0;
};

// What somebody is counted by who takes joins, as people write it: the address, or the /64 that an
// IPv6 host has for itself, `2001:db8::/64`.
[[nodiscard]] std::string CountedAs(const sockaddr_storage& peer, socklen_t length);

class Acceptor {
 public:
  // Binds every address of the host, and waits for nothing: clients queue until Start. Port 0 picks
  // one. UNAVAILABLE: it cannot be bound, and why.
  [[nodiscard]] static StatusOr<std::unique_ptr<Acceptor>> Listen(const Address& listen,
                                                                  AcceptorOptions options);
  ~Acceptor();

  // Listens at a Unix socket, too, which members of `group` may use as well. Before Start. The file
  // goes with the acceptor. Errors as ListenOn's.
  [[nodiscard]] Status ListenAt(const std::string& path, std::optional<gid_t> group);

  [[nodiscard]] uint16_t port() const { return port_; }

  // Before the server is built: its connections come from here, with this one's limits.
  void AddTo(grpc::ServerBuilder* builder, const ServerSecurity& security = {});
  // The same for a server that has connections of its own on this port: those that begin like one
  // through an HTTP proxy, with `CONNECT name HTTP/1.1`, which gRPC's clients do where they are
  // told (grpc.http_connect_server). They get `200`; a name that nobody has gets `404`, and is
  // closed.
  void AddDoor(const std::string& name, grpc::ServerBuilder* builder,
               const ServerSecurity& security = {});
  // Takes connections that begin with `begins`, a whole line, and are read up to there: from
  // anywhere. `take` is called on thread "accept" and does not block; `address` is CountedAs.
  // Before Start.
  using Take = std::function<void(OwnedFile connection, const std::string& address)>;
  void SetGreeted(std::string begins, Take take);
  // After the servers were started.
  void Start();
  // Before the server is shut down: nobody connects any more. Idempotent.
  void Stop();

 private:
  using Clock = std::chrono::steady_clock;
  struct Server {
    std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> plain, tls;
  };
  struct Listener {
    OwnedFile file;
    std::string path;  // of a Unix socket
    std::optional<gid_t> group;
  };
  // Who has not yet said what for: `said` of a request.
  struct Visitor {
    OwnedFile file;
    Clock::time_point until;
    std::string address;  // as people write it
    std::string counted;  // CountedAs
    std::string refusal;  // without TLS; empty: it is let in
    Server* server;       // whose door it is at
    std::string said;
  };
  enum class Heard : uint8_t { kNothingYet, kDone };
  Acceptor(AcceptorOptions options, std::vector<OwnedFile> listeners, OwnedFile wake,
           OwnedFile reserve, uint16_t port);

  Server Connect(grpc::ServerBuilder* builder, const ServerSecurity& security) const;
  void Run(const std::stop_token& stop);
  void HearAll(std::span<const pollfd> polled);
  // Everybody who waits at one listener; false: pause before the next try.
  [[nodiscard]] bool AcceptAll(const Listener& listener);
  // With a full file table: accepts by means of the reserve, and closes; false when even that
  // fails.
  [[nodiscard]] bool TurnAway(const OwnedFile& listener);
  void Admit(OwnedFile connection, const Listener& listener, const sockaddr_storage& peer,
             socklen_t length);
  // Why a connection without TLS is not let in; empty: it is.
  [[nodiscard]] std::string RefusalOf(int connection, const Listener& listener) const;
  // Hands it on, or closes it, as soon as it is known which. Its states: Hear, until its first byte
  // is there, which says which of HandOver, Refuse, HearRequest and HearGreeting it is.
  Heard Hear(Visitor* visitor);
  Heard HearRequest(Visitor* visitor);
  Heard HearGreeting(Visitor* visitor);
  Heard Open(Visitor* visitor);
  void Refuse(int connection, const std::string& address, const std::string& refusal);
  // As SeldomLine has it.
  void Warn(const std::string& what);

  const AcceptorOptions options_;
  const uint16_t port_;
  const OwnedFile wake_;  // an eventfd
  Server server_;
  std::map<std::string, Server> doors_;
  std::string greeting_;
  Take take_;

  // Thread "accept", while it runs.
  std::vector<Listener> listeners_;
  OwnedFile reserve_;
  Connections connections_;
  std::list<Visitor> visitors_;
  SeldomLine warnings_;

  std::jthread thread_;  // "accept"; last: it uses everything above
};

}  // namespace ringmaster
