#include "worker/script/protocol.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <google/protobuf/util/json_util.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include "common/net/socket.h"
#include "common/text.h"
#include "worker/process/passed_files.h"

namespace ringmaster::script {
namespace {

constexpr uint16_t kVersion = 1;
constexpr size_t kMaxPacket = size_t{128} << 10;
constexpr size_t kMaxJson = size_t{64} << 20;
constexpr size_t kMaxFiles = 3;
static_assert(kMaxFiles <= PassedFiles::kMost);

struct Header {
  PacketKind kind = PacketKind::kEnd;
  uint16_t version = kVersion;
  uint32_t zero = 0;
};
static_assert(sizeof(Header) == 8);

template <typename... Args>
Status Malformed(fmt::format_string<Args...> format, Args&&... args) {
  return Error(absl::StatusCode::kDataLoss, "the core protocol: {}",
               fmt::format(format, std::forward<Args>(args)...));
}

Status Closed() {
  return Error(absl::StatusCode::kUnavailable, "the other end of the socket is closed");
}

// Calls transfer() until it is no longer to wait for; bytes, or the error.
template <typename Transfer>
StatusOr<size_t> Until(int socket, short events, Deadline deadline, Transfer transfer) {
  while (true) {
    const ssize_t count = transfer();
    if (count >= 0) return static_cast<size_t>(count);
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return Closed();
    RING_RETURN_IF_ERROR(AwaitSocket(socket, events, deadline, "the other end of the socket"));
  }
}

template <typename T>
void Append(const T& value, std::string* to) {
  to->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Reads values one after the other; what is not there is 0, and `whole` says so.
class Cursor {
 public:
  explicit Cursor(const std::string& bytes) : left_(bytes) {}
  template <typename T>
  T Take() {
    T value{};
    if (left_.size() < sizeof(T)) {
      whole_ = false;
      return value;
    }
    std::memcpy(&value, left_.data(), sizeof(T));
    left_.remove_prefix(sizeof(T));
    return value;
  }
  [[nodiscard]] bool whole() const { return whole_ && left_.empty(); }

 private:
  std::string_view left_;
  bool whole_ = true;
};

StatusOr<OwnedFile> FileOf(const std::string& text) {
  OwnedFile file(memfd_create("ringmaster-json", MFD_CLOEXEC));
  if (file.valid() && WriteAll(file.get(), text)) return file;
  return Error(absl::StatusCode::kResourceExhausted, "cannot make a memory file of {} bytes: {}",
               text.size(), std::strerror(errno));
}

}  // namespace

const char* Name(PacketKind kind) {
  switch (kind) {
    case PacketKind::kHello:
      return "HELLO";
    case PacketKind::kFacts:
      return "FACTS";
    case PacketKind::kLayout:
      return "LAYOUT";
    case PacketKind::kReady:
      return "READY";
    case PacketKind::kShard:
      return "SHARD";
    case PacketKind::kBucket:
      return "BUCKET";
    case PacketKind::kDone:
      return "DONE";
    case PacketKind::kRaised:
      return "RAISED";
    case PacketKind::kEnd:
      return "END";
    case PacketKind::kAhead:
      return "AHEAD";
    case PacketKind::kUp:
      return "UP";
    case PacketKind::kFork:
      return "FORK";
    case PacketKind::kForked:
      return "FORKED";
    case PacketKind::kExited:
      return "EXITED";
  }
  return "a packet of no known kind";
}

Status Send(int socket, PacketKind kind, std::string_view body, std::span<const int> files,
            Deadline deadline) {
  if (sizeof(Header) + body.size() > kMaxPacket || files.size() > kMaxFiles) {
    return InvalidArgument("{} of {} bytes with {} files; at most {} and {}", Name(kind),
                           body.size(), files.size(), kMaxPacket - sizeof(Header), kMaxFiles);
  }
  Header header = {.kind = kind};
  std::array<iovec, 2> parts = {iovec{&header, sizeof(header)},
                                iovec{const_cast<char*>(body.data()), body.size()}};
  msghdr message = {};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  PassedFiles passed;
  passed.SendWith(&message, files);
  return Until(socket, POLLOUT, deadline,
               [&] { return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT); })
      .status();
}

Status SendJson(int socket, PacketKind kind, const google::protobuf::Message& message,
                std::span<const int> files, Deadline deadline) {
  std::string text;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  const auto printed = google::protobuf::util::MessageToJsonString(message, &text, options);
  if (!printed.ok()) return Internal("{} as JSON: {}", Name(kind), std::string(printed.message()));
  RING_ASSIGN_OR_RETURN(const OwnedFile json, FileOf(text));
  std::vector<int> all = {json.get()};
  all.insert(all.end(), files.begin(), files.end());
  std::string body;
  Append(uint64_t{text.size()}, &body);
  return Send(socket, kind, body, all, deadline);
}

StatusOr<Packet> Receive(int socket, Deadline deadline) {
  Header header;
  Packet packet;
  packet.body.resize(kMaxPacket - sizeof(header));
  std::array<iovec, 2> parts = {iovec{&header, sizeof(header)},
                                iovec{packet.body.data(), packet.body.size()}};
  PassedFiles passed;
  msghdr message = {};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const auto receive = [&] {
    ssize_t count = 0;
    do {
      passed.ReceiveWith(&message);
      count = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
      // That the other end left something unread is said once, in front of what it had sent.
    } while (count < 0 && errno == ECONNRESET);
    return count;
  };
  RING_ASSIGN_OR_RETURN(const size_t bytes, Until(socket, POLLIN, deadline, receive));
  packet.files = PassedFiles::Of(&message).files;
  if (bytes == 0) return Closed();
  if (bytes < sizeof(header) || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return Malformed("a packet of {} bytes that is none", bytes);
  }
  if (header.version != kVersion) {
    return Malformed(
        "this worker speaks version {}, the script's package version {}: take both "
        "from one release",
        kVersion, header.version);
  }
  packet.kind = header.kind;
  packet.body.resize(bytes - sizeof(header));
  return packet;
}

Status TakeJson(Packet* packet, google::protobuf::Message* message) {
  Cursor cursor(packet->body);
  const auto length = cursor.Take<uint64_t>();
  if (!cursor.whole() || packet->files.empty() || length > kMaxJson) {
    return Malformed("{} has no JSON, or more than {} bytes of it", Name(packet->kind), kMaxJson);
  }
  const std::string text = ReadText(packet->files.front().get(), 0, length);
  if (text.size() < length) return Malformed("the JSON of {} is cut off", Name(packet->kind));
  packet->files.erase(packet->files.begin());
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto parsed = google::protobuf::util::JsonStringToMessage(text, message, options);
  if (parsed.ok()) return absl::OkStatus();
  return Malformed("the JSON of {}: {}", Name(packet->kind),
                   OneLine(std::string(parsed.message())));
}

std::string ToBody(const ShardCall& call) {
  std::string body;
  for (const uint64_t number : {call.step, call.update, call.seed, call.batch}) {
    Append(number, &body);
  }
  const auto rows = static_cast<uint32_t>(call.samples.size());
  for (const uint32_t number : {call.shard, call.shards, rows}) Append(number, &body);
  Append(call.seed_scale, &body);
  for (const uint64_t sample : call.samples) Append(sample, &body);
  return body;
}

std::string ToBody(const ComingShard& coming) {
  std::string body;
  for (const uint64_t number : {coming.step, coming.seed}) Append(number, &body);
  const auto rows = static_cast<uint32_t>(coming.samples.size());
  for (const uint32_t number : {coming.shard, rows}) Append(number, &body);
  for (const uint64_t sample : coming.samples) Append(sample, &body);
  return body;
}

StatusOr<ShardDone> DoneOf(const std::string& body, size_t metrics, size_t groups) {
  Cursor cursor(body);
  ShardDone done;
  done.step = cursor.Take<uint64_t>();
  done.shard = cursor.Take<uint32_t>();
  const auto has_metrics = cursor.Take<uint32_t>();
  const auto has_groups = cursor.Take<uint32_t>();
  if (has_metrics != metrics || has_groups != groups) {
    return Malformed("DONE with {} metrics and {} rates, expected {} and {}", has_metrics,
                     has_groups, metrics, groups);
  }
  done.loss = cursor.Take<double>();
  for (size_t i = 0; i < metrics; ++i) done.metrics.push_back(cursor.Take<double>());
  for (size_t i = 0; i < groups; ++i) done.rates.push_back(cursor.Take<double>());
  if (cursor.whole()) return done;
  return Malformed("DONE of {} bytes", body.size());
}

std::vector<uint32_t> BucketOf(const std::string& body) {
  std::vector<uint32_t> tensors(body.size() / sizeof(uint32_t));
  std::memcpy(tensors.data(), body.data(), tensors.size() * sizeof(uint32_t));
  return tensors;
}

}  // namespace ringmaster::script
