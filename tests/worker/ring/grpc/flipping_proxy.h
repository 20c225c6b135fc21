// A way between two ring ports that changes one bit: a proxy of TCP connections that knows nothing
// of what they carry. Its thread is its own; Stop() or the end waits for it.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <thread>
#include <vector>

namespace ringmaster::ring {

enum class Way : uint8_t { kToServer, kToClient };

// One bit of one direction.
struct Flip {
  Way way = Way::kToServer;
  uint64_t byte = 0;
  int bit = 0;
};

class FlippingProxy {
 public:
  // From a port of its own to 127.0.0.1:`target`. port() is 0 when it could not begin.
  FlippingProxy(uint16_t target, Flip flip) : target_(target), flip_(flip) {
    stop_ = eventfd(0, EFD_CLOEXEC);
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof(address);
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener_, plain, size) != 0 || listen(listener_, 8) != 0) return;
    if (getsockname(listener_, plain, &size) != 0) return;
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([this]() { Run(); });
  }
  ~FlippingProxy() {
    Stop();
    for (const int descriptor : {stop_, listener_}) close(descriptor);
  }
  FlippingProxy(const FlippingProxy&) = delete;
  FlippingProxy& operator=(const FlippingProxy&) = delete;

  [[nodiscard]] uint16_t port() const { return port_; }
  [[nodiscard]] bool flipped() const { return flipped_; }
  // Bytes so far.
  [[nodiscard]] uint64_t seen(Way way) const { return seen_[static_cast<size_t>(way)]; }
  // Breaks every connection off.
  void Stop() {
    const uint64_t one = 1;
    (void)!write(stop_, &one, sizeof(one));
    if (thread_.joinable()) thread_.join();
  }

 private:
  struct Direction {
    int from, to;
    Way way;
    bool over = false;
  };

  static sockaddr_in Loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  void Run() {
    while (true) {
      std::vector<pollfd> polled{{stop_, POLLIN, 0}, {listener_, POLLIN, 0}};
      std::vector<Direction*> readers;
      for (Direction& direction : directions_) {
        if (direction.over) continue;
        polled.push_back({direction.from, POLLIN, 0});
        readers.push_back(&direction);
      }
      if (poll(polled.data(), polled.size(), 60'000) <= 0 || polled[0].revents != 0) break;
      for (size_t i = 0; i < readers.size(); ++i) {
        if (polled[i + 2].revents != 0) Pump(readers[i]);
      }
      if (polled[1].revents != 0) Accept();
    }
    for (const int descriptor : descriptors_) close(descriptor);
  }

  void Accept() {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    descriptors_.insert(descriptors_.end(), {client, server});
    const sockaddr_in address = Loopback(target_);
    if (connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return;
    const int on = 1;
    const timeval patience{.tv_sec = 5, .tv_usec = 0};  // for a peer that reads nothing
    for (const int end : {client, server}) {
      setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      setsockopt(end, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    }
    directions_.push_back({client, server, Way::kToServer});
    directions_.push_back({server, client, Way::kToClient});
  }

  void Pump(Direction* direction) {
    std::array<uint8_t, 65'536> bytes;
    const ssize_t count = recv(direction->from, bytes.data(), bytes.size(), 0);
    if (count <= 0) {
      direction->over = true;
      shutdown(direction->to, SHUT_WR);
      return;
    }
    const auto number = static_cast<uint64_t>(count);
    const uint64_t before = seen_[static_cast<size_t>(direction->way)].fetch_add(number);
    if (direction->way == flip_.way && flip_.byte - before < number) {
      bytes[flip_.byte - before] ^= static_cast<uint8_t>(1 << flip_.bit);
      flipped_ = true;
    }
    for (size_t at = 0; at < number;) {
      const ssize_t sent = send(direction->to, bytes.data() + at, number - at, MSG_NOSIGNAL);
      if (sent <= 0) {
        direction->over = true;
        shutdown(direction->from, SHUT_RD);
        return;
      }
      at += static_cast<size_t>(sent);
    }
  }

  const uint16_t target_;
  const Flip flip_;
  int stop_ = -1, listener_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> flipped_ = false;
  std::array<std::atomic<uint64_t>, 2> seen_{};  // by Way

  // The thread's.
  std::list<Direction> directions_;
  std::vector<int> descriptors_;

  std::jthread thread_;
};

}  // namespace ringmaster::ring
