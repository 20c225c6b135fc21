// How the daemon and a plugin's process speak: small messages over a stream socket, each a header
// of fixed layout with the protocol's version, a body, and files that go with it; what is large
// lies in shared memory. Bodies are the fields of a struct one after the other (its Fields),
// numbers as they lie in this machine's memory. Thread-safe (free functions); one thread at a time
// reads a socket, one writes it.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "common/files.h"
#include "common/status.h"

namespace ringmaster::pjrt {

enum class MessageKind : uint16_t {
  kError,     // ErrorReply
  kDone,      // a reply without anything to say
  kStart,     // StartRequest; on the control socket
  kStarted,   // PluginFacts
  kOpenLane,  // with its socket; on the control socket, without a reply
  kMemory,    // MemoryRequest, with the file; the rest on lanes
  kBind,      // BindRequest, with the text's file and the weights'
  kBound,     // BindReply
  kRun,       // RunRequest
  kRelease,   // ReleaseRequest
};
inline constexpr uint16_t kMessageKinds = 10;

using Deadline = std::chrono::steady_clock::time_point;

struct HostMessage {
  MessageKind kind = MessageKind::kDone;
  std::string body;
  std::vector<OwnedFile> files;
};

// UNAVAILABLE: the other end is closed. DEADLINE_EXCEEDED: it was not taken in time.
[[nodiscard]] Status Send(int socket, MessageKind kind, const std::string& body,
                          std::span<const int> files, Deadline deadline);
// UNAVAILABLE: the other end is closed. DEADLINE_EXCEEDED: nothing whole came in time. DATA_LOSS:
// what came is no message of this version.
[[nodiscard]] StatusOr<HostMessage> Receive(int socket, Deadline deadline);

namespace message_internal {

template <typename T>
concept Number = std::is_arithmetic_v<T> || std::is_enum_v<T>;

class Writer {
 public:
  template <Number T>
  void operator()(T& number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  void operator()(std::string& text) {
    auto size = static_cast<uint32_t>(text.size());
    (*this)(size);
    bytes += text;
  }
  template <typename T>
  void operator()(std::vector<T>& values) {
    auto size = static_cast<uint32_t>(values.size());
    (*this)(size);
    for (T& value : values) (*this)(value);
  }
  template <typename T>
  requires std::is_class_v<T>
  void operator()(T& value) { value.Fields(*this); }

  std::string bytes;
};

// Once something does not fit, nothing is read any more.
class Reader {
 public:
  explicit Reader(std::span<const char> bytes) : rest_(bytes) {}

  template <Number T>
  void operator()(T& number) {
    if (rest_.size() < sizeof(number)) return Fail();
    if constexpr (std::is_same_v<T, bool>) {
      number = rest_[0] != 0;
    } else {
      std::memcpy(&number, rest_.data(), sizeof(number));
    }
    rest_ = rest_.subspan(sizeof(number));
  }
  void operator()(std::string& text) {
    uint32_t size = 0;
    (*this)(size);
    if (rest_.size() < size) return Fail();
    text.assign(rest_.data(), size);
    rest_ = rest_.subspan(size);
  }
  template <typename T>
  void operator()(std::vector<T>& values) {
    uint32_t size = 0;
    (*this)(size);
    if (rest_.size() < size) return Fail();  // nothing is shorter than a byte
    values.resize(size);
    for (T& value : values) (*this)(value);
  }
  template <typename T>
  requires std::is_class_v<T>
  void operator()(T& value) { value.Fields(*this); }

  [[nodiscard]] bool whole() const { return !failed_ && rest_.empty(); }

 private:
  void Fail() {
    failed_ = true;
    rest_ = {};
  }

  std::span<const char> rest_;
  bool failed_ = false;
};

}  // namespace message_internal

template <typename T>
[[nodiscard]] std::string Encode(T value) {
  message_internal::Writer writer;
  value.Fields(writer);
  return std::move(writer.bytes);
}

// DATA_LOSS where the body is not exactly the struct's fields.
template <typename T>
[[nodiscard]] StatusOr<T> Decode(const HostMessage& message) {
  T value;
  message_internal::Reader reader(message.body);
  value.Fields(reader);
  if (reader.whole()) return value;
  return DataLoss("message {}: a body of {} bytes is not what such a message has",
                  static_cast<int>(message.kind), message.body.size());
}

}  // namespace ringmaster::pjrt
