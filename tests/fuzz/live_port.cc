// Whatever comes to a port that listens: the accept loop in front of gRPC, with a door and a
// greeting, and gRPC's server behind it. The first byte of the input says how many bytes are sent
// at a time. gRPC itself is not instrumented.
#include <arpa/inet.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>

#include "common/check.h"
#include "common/rpc/acceptor.h"

namespace ringmaster {
namespace {

struct Port {
  std::unique_ptr<Acceptor> acceptor;
  grpc::CallbackGenericService nothing, nothing_behind;  // every method is unknown
  std::unique_ptr<grpc::Server> server, behind;

  Port() {
    spdlog::set_level(spdlog::level::off);
    grpc::EnableDefaultHealthCheckService(true);
    AcceptorOptions options;
    options.handshake = options.idle = std::chrono::milliseconds(1'000);
    auto listening = Acceptor::Listen({"127.0.0.1", 0}, options);
    RING_CHECK(listening.ok(), "a port of loopback");
    acceptor = *std::move(listening);
    grpc::ServerBuilder builder, door;
    acceptor->AddTo(&builder);
    acceptor->AddDoor("link", &door);
    acceptor->SetGreeted("RMJOIN1\n", [](const OwnedFile& connection, const std::string&) {
      (void)send(connection.get(), "joined", 6, MSG_NOSIGNAL | MSG_DONTWAIT);
    });
    builder.RegisterCallbackGenericService(&nothing);
    door.RegisterCallbackGenericService(&nothing_behind);
    server = builder.BuildAndStart();
    behind = door.BuildAndStart();
    RING_CHECK(server != nullptr && behind != nullptr, "two servers");
    acceptor->Start();
  }
  ~Port() {
    acceptor->Stop();
    server->Shutdown();
    behind->Shutdown();
  }
};

// 0, or an errno. libFuzzer's clock interrupts what waits; a connection goes on coming then.
int ConnectTo(int socket, const sockaddr_in& address) {
  if (connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return 0;
  if (errno != EINTR) return errno;
  pollfd wait{socket, POLLOUT, 0};
  int ready = 0;
  do {
    ready = poll(&wait, 1, 8'000);
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  return getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

}  // namespace
}  // namespace ringmaster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  static const Port port;
  if (size < 2) return 0;
  const OwnedFile connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port.acceptor->port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int error = ConnectTo(connection.get(), address);
  RING_CHECK(error == 0, std::strerror(error));
  const std::span<const uint8_t> bytes(data + 1, size - 1);
  const size_t step = size_t{1} + data[0];
  for (size_t at = 0; at < bytes.size(); at += step) {
    const auto part = bytes.subspan(at, std::min(step, bytes.size() - at));
    if (send(connection.get(), part.data(), part.size(), MSG_NOSIGNAL) < 0) break;
  }
  (void)shutdown(connection.get(), SHUT_WR);
  // Until the other side ends it, which it has to do.
  char said[4096];
  pollfd wait{connection.get(), POLLIN, 0};
  while (true) {
    const int ready = poll(&wait, 1, 8'000);
    if (ready < 0 && errno == EINTR) continue;  // libFuzzer's clock
    RING_CHECK(ready == 1, "it ends what ended");
    if (recv(connection.get(), said, sizeof(said), 0) <= 0) return 0;
  }
}
