// A way between two ring ports that changes one bit: a proxy of TCP connections that knows just
// enough of HTTP/2 to leave HEADERS alone. Its thread is its own; Stop() or the end waits for it.
//
// HEADERS frames stay as they are, and no other frame becomes one: libgrpc 1.51 aborts the process
// where the headers that answer a stream of its callback API are damaged (docs/ring.md).
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

// One bit of one direction. Bytes that may not change are not counted.
struct Flip {
  Way way = Way::kToServer;
  uint64_t byte = 0;
  int bit = 0;
};

// The bytes of one direction of one connection, and where its frames begin.
class FlippingStream {
 public:
  explicit FlippingStream(Way way) : preface_(way == Way::kToServer ? 24 : 0) {}

  // What is to be sent on of `bytes`; the header of a frame waits until all of it is there.
  // `seen` counts bytes that may change; the one with number `byte` changes in `bit`, unless that
  // makes its frame one of HEADERS: then a later one does. True when it did.
  bool Pass(const uint8_t* bytes, size_t count, const Flip* flip, std::atomic<uint64_t>* seen,
            std::vector<uint8_t>* out) {
    bool flipped = false;
    const auto emit = [&](uint8_t byte, bool is_type, bool may_change) {
      if (may_change) {
        const uint64_t number = (*seen)++;
        if (flip != nullptr && !flipped && number >= flip->byte) {
          const auto changed = static_cast<uint8_t>(byte ^ (1 << flip->bit));
          flipped = !is_type || !IsHeaders(changed);
          if (flipped) byte = changed;
        }
      }
      out->push_back(byte);
    };
    for (size_t i = 0; i < count; ++i) {
      if (preface_ > 0) {
        --preface_;
        emit(bytes[i], false, true);
      } else if (left_ > 0) {
        --left_;
        emit(bytes[i], false, !headers_);
      } else {
        header_[have_++] = bytes[i];
        if (have_ < header_.size()) continue;
        have_ = 0;
        left_ = size_t{header_[0]} << 16 | size_t{header_[1]} << 8 | header_[2];
        headers_ = IsHeaders(header_[3]);
        for (size_t j = 0; j < header_.size(); ++j) emit(header_[j], j == 3, !headers_);
      }
    }
    return flipped;
  }

 private:
  // HEADERS, PUSH_PROMISE and CONTINUATION.
  static bool IsHeaders(uint8_t type) { return type == 1 || type == 5 || type == 9; }

  size_t preface_;
  std::array<uint8_t, 9> header_{};
  size_t have_ = 0;  // of the header
  size_t left_ = 0;  // of the frame
  bool headers_ = false;
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
  // Bytes that could have changed so far.
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
    FlippingStream stream;
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
    directions_.push_back({client, server, Way::kToServer, FlippingStream(Way::kToServer)});
    directions_.push_back({server, client, Way::kToClient, FlippingStream(Way::kToClient)});
  }

  void Pump(Direction* direction) {
    std::array<uint8_t, 65'536> bytes;
    const ssize_t count = recv(direction->from, bytes.data(), bytes.size(), 0);
    if (count <= 0) {
      direction->over = true;
      shutdown(direction->to, SHUT_WR);
      return;
    }
    const bool here = direction->way == flip_.way && !flipped_;
    std::vector<uint8_t> out;
    if (direction->stream.Pass(bytes.data(), static_cast<size_t>(count), here ? &flip_ : nullptr,
                               &seen_[static_cast<size_t>(direction->way)], &out)) {
      flipped_ = true;
    }
    for (size_t at = 0; at < out.size();) {
      const ssize_t sent = send(direction->to, out.data() + at, out.size() - at, MSG_NOSIGNAL);
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
