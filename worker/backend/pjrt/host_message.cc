#include "worker/backend/pjrt/host_message.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "common/net/socket.h"
#include "worker/process/passed_files.h"

namespace ringmaster::pjrt {
namespace {

constexpr uint32_t kMagic = 0x52504a54;
constexpr uint16_t kVersion = 1;
constexpr uint32_t kMaxBody = 4 << 20;
constexpr size_t kMaxFiles = 2;
static_assert(kMaxFiles <= PassedFiles::kMost);

struct Header {
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  MessageKind kind = MessageKind::kDone;
  uint32_t body_bytes = 0;
  uint32_t files = 0;
};
static_assert(sizeof(Header) == 16);

Status Closed() {
  return Error(absl::StatusCode::kUnavailable, "the other end of the socket is closed");
}

// Of a call that failed: whether to wait and try again.
StatusOr<bool> MayRetry(int socket, short events, Deadline deadline) {
  if (errno == EINTR) return true;
  if (errno != EAGAIN && errno != EWOULDBLOCK) return Closed();
  RING_RETURN_IF_ERROR(AwaitSocket(socket, events, deadline, "the other end of the socket"));
  return true;
}

Status SendAll(int socket, std::span<const char> bytes, msghdr* first, Deadline deadline) {
  while (!bytes.empty()) {
    iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
    msghdr plain = {};
    msghdr* const message = first != nullptr ? first : &plain;
    message->msg_iov = &part;
    message->msg_iovlen = 1;
    const ssize_t sent = sendmsg(socket, message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      RING_ASSIGN_OR_RETURN([[maybe_unused]] const bool again, MayRetry(socket, POLLOUT, deadline));
      continue;
    }
    first = nullptr;  // files went with the first byte
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  return absl::OkStatus();
}

Status ReceiveAll(int socket, std::span<char> bytes, std::vector<OwnedFile>* files,
                  Deadline deadline) {
  while (!bytes.empty()) {
    iovec part = {bytes.data(), bytes.size()};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    PassedFiles passed;
    passed.ReceiveWith(&message);
    const ssize_t received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (received == 0) return Closed();
    if (received < 0) {
      RING_ASSIGN_OR_RETURN([[maybe_unused]] const bool again, MayRetry(socket, POLLIN, deadline));
      continue;
    }
    for (OwnedFile& file : PassedFiles::Of(&message).files) files->push_back(std::move(file));
    bytes = bytes.subspan(static_cast<size_t>(received));
  }
  return absl::OkStatus();
}

}  // namespace

Status Send(int socket, MessageKind kind, const std::string& body, std::span<const int> files,
            Deadline deadline) {
  if (body.size() > kMaxBody || files.size() > kMaxFiles) {
    return InvalidArgument("message {}: {} bytes and {} files are more than {} and {}",
                           static_cast<int>(kind), body.size(), files.size(), kMaxBody, kMaxFiles);
  }
  const Header header = {.kind = kind,
                         .body_bytes = static_cast<uint32_t>(body.size()),
                         .files = static_cast<uint32_t>(files.size())};
  msghdr message = {};
  PassedFiles passed;
  passed.SendWith(&message, files);
  RING_RETURN_IF_ERROR(SendAll(socket, {reinterpret_cast<const char*>(&header), sizeof(header)},
                               &message, deadline));
  return SendAll(socket, body, nullptr, deadline);
}

StatusOr<HostMessage> Receive(int socket, Deadline deadline) {
  Header header;
  HostMessage message;
  RING_RETURN_IF_ERROR(ReceiveAll(socket, {reinterpret_cast<char*>(&header), sizeof(header)},
                                  &message.files, deadline));
  if (header.magic != kMagic || header.version != kVersion ||
      static_cast<uint16_t>(header.kind) >= kMessageKinds || header.body_bytes > kMaxBody) {
    return DataLoss(
        "expected a message of version {}, got {:#x}, version {}, kind {}, {} bytes: both programs "
        "must be of one build",
        kVersion, header.magic, header.version, static_cast<int>(header.kind), header.body_bytes);
  }
  message.kind = header.kind;
  message.body.resize(header.body_bytes);
  RING_RETURN_IF_ERROR(ReceiveAll(socket, message.body, &message.files, deadline));
  if (message.files.size() != header.files) {
    return DataLoss("message {}: expected {} files, got {}", static_cast<int>(header.kind),
                    header.files, message.files.size());
  }
  return message;
}

}  // namespace ringmaster::pjrt
