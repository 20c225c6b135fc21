// The limit: what a float32 ring moves, over plain sockets. A thread sends to the successor while
// another receives from the predecessor; nothing is added up.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "bench/ring/contender.h"
#include "common/net/address.h"

namespace ringmaster::bench {
namespace {

constexpr size_t kChunkBytes = size_t{512} << 10;

sockaddr_in SocketAddress(const Address& address) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(address.port);
  inet_pton(AF_INET, address.host.c_str(), &result.sin_addr);
  return result;
}

Status Failed(const char* call) {
  return Error(absl::StatusCode::kUnavailable, "tcp: {}: {}", call, std::strerror(errno));
}

// So that no call of it waits for ever.
void SetOptions(int socket) {
  const timeval patience{.tv_sec = std::chrono::seconds(kPatience).count(), .tv_usec = 0};
  const int on = 1;
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

class TcpContender : public Contender {
 public:
  explicit TcpContender(const Member& member) : member_(member), chunk_(kChunkBytes) {}
  ~TcpContender() override {
    for (const int socket : {listener_, out_, in_}) {
      if (socket >= 0) close(socket);
    }
  }

  Status Connect() {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = SocketAddress({member_.host, 0});
    socklen_t size = sizeof(address);
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener_, plain, size) != 0 || listen(listener_, 1) != 0) return Failed("listen");
    if (getsockname(listener_, plain, &size) != 0) return Failed("getsockname");
    Publish(member_, fmt::format("{}:{}", member_.host, ntohs(address.sin_port)));
    RING_ASSIGN_OR_RETURN(const std::string next,
                          ReadPublished(member_, (member_.rank + 1) % member_.size));
    RING_ASSIGN_OR_RETURN(const Address successor, ParseAddress(next, "successor"));
    address = SocketAddress(successor);
    out_ = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(out_, plain, sizeof(address)) != 0) return Failed("connect");
    pollfd waiting{.fd = listener_, .events = POLLIN, .revents = 0};
    const auto limit = std::chrono::milliseconds(kPatience).count();
    if (poll(&waiting, 1, static_cast<int>(limit)) != 1) return Failed("poll");
    in_ = accept(listener_, nullptr, nullptr);
    if (in_ < 0) return Failed("accept");
    SetOptions(out_);
    SetOptions(in_);
    return absl::OkStatus();
  }

  Status Load(std::span<const float> own) override {
    bytes_ = own.size_bytes() * 2 * (member_.size - 1) / member_.size;
    data_.assign(std::max(bytes_, kChunkBytes), 'x');
    return absl::OkStatus();
  }

  Status Reduce() override {
    Status sent;
    {
      const std::jthread sender([&] { sent = Send(); });
      RING_RETURN_IF_ERROR(Receive());
    }
    return sent;
  }

  [[nodiscard]] std::span<const float> sums() const override { return {}; }

 private:
  Status Send() {
    for (size_t at = 0; at < bytes_;) {
      const ssize_t n = send(out_, data_.data() + at, std::min(kChunkBytes, bytes_ - at), 0);
      if (n <= 0) return Failed("send");
      at += static_cast<size_t>(n);
    }
    return absl::OkStatus();
  }

  Status Receive() {
    for (size_t at = 0; at < bytes_;) {
      const ssize_t n = recv(in_, chunk_.data(), std::min(kChunkBytes, bytes_ - at), 0);
      if (n <= 0) return Failed("recv");
      at += static_cast<size_t>(n);
    }
    return absl::OkStatus();
  }

  const Member member_;
  int listener_ = -1, out_ = -1, in_ = -1;
  size_t bytes_ = 0;
  std::vector<char> data_, chunk_;
};

}  // namespace

StatusOr<std::unique_ptr<Contender>> MakeTcp(const Member& member) {
  auto contender = std::make_unique<TcpContender>(member);
  RING_RETURN_IF_ERROR(contender->Connect());
  return contender;
}

}  // namespace ringmaster::bench
