// The accept loop in front of a gRPC server: it listens, bounds connections, and hands each to the
// server as a file descriptor. gRPC 1.51 itself never accepts again once the file table was full
// (CVE-2023-4785), and bounds no connections. Owned by whoever owns the server; thread "accept"
// accepts, and reads which door a connection asks for; everything else is its owner's thread. It
// knows no calls.
#pragma once

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <poll.h>

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/address.h"
#include "common/files.h"
#include "common/status.h"

namespace ringmaster {

struct AcceptorOptions {
  // Connections at a time, in all and from one address (an IPv6 host is its /64); one more is
  // closed at once. Never more in all than half of the files that this process may open.
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

class Acceptor {
 public:
  // Binds every address of the host, and waits for nothing: clients queue until Start. Port 0 picks
  // one. UNAVAILABLE: it cannot be bound, and why.
  [[nodiscard]] static StatusOr<std::unique_ptr<Acceptor>> Listen(const Address& listen,
                                                                  AcceptorOptions options);
  ~Acceptor();

  [[nodiscard]] uint16_t port() const { return port_; }

  // Before the server is built: its connections come from here, with this one's limits.
  void AddTo(grpc::ServerBuilder* builder, std::shared_ptr<grpc::ServerCredentials> credentials);
  // The same for a server that has connections of its own on this port: those that begin like one
  // through an HTTP proxy, with `CONNECT name HTTP/1.1`, which gRPC's clients do where they are
  // told (grpc.http_connect_server). They get `200`; a name that nobody has gets `404`, and is
  // closed.
  void AddDoor(const std::string& name, grpc::ServerBuilder* builder,
               std::shared_ptr<grpc::ServerCredentials> credentials);
  // After the servers were started.
  void Start();
  // Before the server is shut down: nobody connects any more. Idempotent.
  void Stop();

 private:
  using Clock = std::chrono::steady_clock;
  using Server = std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>;
  // Who has not yet said what for: `said` of a request.
  struct Visitor {
    OwnedFile file;
    Clock::time_point until;
    std::string said;
  };
  enum class Heard : uint8_t { kNothingYet, kDone };
  Acceptor(AcceptorOptions options, std::vector<OwnedFile> listeners, OwnedFile wake,
           OwnedFile reserve, uint16_t port);

  Server Connect(grpc::ServerBuilder* builder,
                 std::shared_ptr<grpc::ServerCredentials> credentials) const;
  void Run(const std::stop_token& stop);
  void HearAll(std::span<const pollfd> polled);
  // Everybody who waits at one listener; false: pause before the next try.
  [[nodiscard]] bool AcceptAll(const OwnedFile& listener);
  // With a full file table: accepts by means of the reserve, and closes; false when even that
  // fails.
  [[nodiscard]] bool TurnAway(const OwnedFile& listener);
  void Admit(OwnedFile connection, const std::string& address);
  // Hands it on, or closes it, as soon as it is known which.
  Heard Hear(Visitor* visitor);
  void Open(Visitor* visitor);
  // Not more often than every 10 s, with how many there were meanwhile.
  void Warn(const std::string& what);

  const AcceptorOptions options_;
  const uint16_t port_;
  const OwnedFile wake_;  // an eventfd
  Server server_;
  std::map<std::string, Server> doors_;

  // Thread "accept", while it runs.
  std::vector<OwnedFile> listeners_;
  OwnedFile reserve_;
  Connections connections_;
  std::list<Visitor> visitors_;
  Clock::time_point warned_;
  uint64_t unsaid_ = 0;

  std::jthread thread_;  // "accept"; last: it uses everything above
};

}  // namespace ringmaster
