#include "worker/ring/grpc/link_memory.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>

#include "common/sha256.h"
#include "common/ticket.h"
#include "worker/process/passed_files.h"

namespace ringmaster::ring {
namespace {

// Enough for what is under way on an edge when nobody is late; those behind go over the stream.
constexpr uint32_t kPlaces = 48;
constexpr size_t kPage = 4096;

// Of an abstract socket: behind a byte of zero, the prefix and 128 random bits in hexadecimal.
constexpr std::string_view kDoorPrefix = "ringmaster-link-";
constexpr size_t kDoorDigits = 2 * kTicketBytes;

size_t Pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// In front of the places, in pages of their own.
struct alignas(64) Holders {
  std::atomic<uint32_t> count;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free, "two processes count");
static_assert(sizeof(Holders) == 64, "else neighbours share a line of the cache");

// Length of the address: a name without an end of its own.
socklen_t AddressOf(std::string_view name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

OwnedFile DatagramSocket() {
  return OwnedFile(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Nobody has a datagram sent to a door that is none of ours.
bool NamesDoor(std::string_view name) {
  return name.size() == kDoorPrefix.size() + kDoorDigits && name.starts_with(kDoorPrefix) &&
         std::ranges::all_of(name.substr(kDoorPrefix.size()), [](char digit) {
           return (digit >= '0' && digit <= '9') || (digit >= 'a' && digit <= 'f');
         });
}

}  // namespace

size_t LinkMemory::BytesOf(const Layout& layout) {
  return Pages(layout.places * sizeof(Holders)) + size_t{layout.places} * layout.place_bytes;
}

StatusOr<std::shared_ptr<LinkMemory>> LinkMemory::Create(size_t largest_payload) {
  const Layout layout{kPlaces, static_cast<uint32_t>(Pages(largest_payload))};
  // All that is in a new file is 0: every place is free.
  RING_ASSIGN_OR_RETURN(
      SharedMemory memory,
      SharedMemory::Create("ringmaster-link", BytesOf(layout), SharedMemory::Access::kWrite));
  return std::shared_ptr<LinkMemory>(new LinkMemory(layout, std::move(memory)));
}

StatusOr<std::shared_ptr<LinkMemory>> LinkMemory::Map(const Layout& layout, OwnedFile file) {
  if (layout.places == 0 || layout.place_bytes == 0 || layout.place_bytes % kPage != 0) {
    return InvalidArgument("memory of a link: {} places of {} bytes", layout.places,
                           layout.place_bytes);
  }
  RING_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Map(std::move(file), BytesOf(layout),
                                                               SharedMemory::Access::kWrite));
  return std::shared_ptr<LinkMemory>(new LinkMemory(layout, std::move(memory)));
}

namespace {

std::atomic<uint32_t>& HoldersOf(const SharedMemory& memory, uint32_t index) {
  return reinterpret_cast<Holders*>(memory.data())[index].count;
}

}  // namespace

uint8_t* LinkMemory::at(uint32_t index) const {
  std::byte* const places = memory_.data() + Pages(layout_.places * sizeof(Holders));
  return reinterpret_cast<uint8_t*>(places) + size_t{index} * layout_.place_bytes;
}

std::shared_ptr<uint8_t> LinkMemory::Held(uint32_t index) {
  return {at(index), [self = shared_from_this(), index](uint8_t* /*place*/) {
            HoldersOf(self->memory_, index).fetch_sub(1, std::memory_order_acq_rel);
          }};
}

std::shared_ptr<uint8_t> LinkMemory::Lend(size_t bytes) {
  if (bytes < kLeastPayload || bytes > layout_.place_bytes) return nullptr;
  // The first one that is free: it was used last, or its pages were. Only this end takes places.
  for (uint32_t index = 0; index < layout_.places; ++index) {
    std::atomic<uint32_t>& holders = HoldersOf(memory_, index);
    if (holders.load(std::memory_order_acquire) != 0) continue;
    holders.store(1, std::memory_order_relaxed);
    return Held(index);
  }
  return nullptr;
}

uint32_t LinkMemory::Put(const Payload& payload) {
  if (payload.size() < kLeastPayload || payload.size() > layout_.place_bytes) return 0;
  const uint8_t* start = payload.pieces().front().data();
  std::shared_ptr<uint8_t> copy;
  const auto inside = [&] {
    return payload.pieces().size() == 1 && start >= at(0) && start < at(layout_.places);
  };
  if (!inside()) {
    copy = Lend(payload.size());
    if (copy == nullptr) return 0;
    uint8_t* end = copy.get();
    for (const Payload::Piece& piece : payload.pieces()) {
      end = std::ranges::copy(piece, end).out;
    }
    start = copy.get();
  }
  const auto offset = static_cast<size_t>(start - at(0));
  if (offset % layout_.place_bytes != 0) return 0;
  const auto index = static_cast<uint32_t>(offset / layout_.place_bytes);
  HoldersOf(memory_, index).fetch_add(1, std::memory_order_relaxed);
  return index + 1;
}

StatusOr<Payload> LinkMemory::Take(uint32_t place, size_t bytes) {
  if (place == 0 || place > layout_.places || bytes > layout_.place_bytes) {
    return InvalidArgument("frame place: {} bytes in place {}, of {} with {} bytes each", bytes,
                           place, layout_.places, layout_.place_bytes);
  }
  std::shared_ptr<uint8_t> held = Held(place - 1);
  const Payload::Piece piece(held.get(), bytes);
  return Payload({piece}, std::move(held));
}

StatusOr<MemoryDoor> MemoryDoor::Open() {
  MemoryDoor door;
  door.socket_ = DatagramSocket();
  door.name_ = std::string(kDoorPrefix) + Hex(RandomTicket());
  sockaddr_un address;
  const socklen_t length = AddressOf(door.name_, &address);
  const int on = 1;
  if (!door.socket_.valid() ||
      setsockopt(door.socket_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0 ||
      bind(door.socket_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    return Error(absl::StatusCode::kUnavailable, "no socket for the memory of a link: {}",
                 std::strerror(errno));
  }
  return door;
}

StatusOr<std::shared_ptr<LinkMemory>> MemoryDoor::Receive() const {
  while (true) {
    LinkMemory::Layout layout;
    iovec part = {&layout, sizeof(layout)};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    PassedFiles passed;
    passed.ReceiveWith(&message);
    const ssize_t bytes = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) {
      return Error(absl::StatusCode::kNotFound, "no memory of a link came: {}",
                   std::strerror(errno));
    }
    PassedFiles::Received received = PassedFiles::Of(&message);
    if (received.user != geteuid()) continue;
    if (bytes != sizeof(layout) || received.files.size() != 1) {
      return InvalidArgument("memory of a link: a message of {} bytes with {} files", bytes,
                             received.files.size());
    }
    return LinkMemory::Map(layout, std::move(received.files.front()));
  }
}

Status MemoryDoor::Pass(const LinkMemory& memory, const std::string& name) {
  if (!NamesDoor(name)) return Error(absl::StatusCode::kNotFound, "no door has such a name");
  sockaddr_un address;
  LinkMemory::Layout layout = memory.layout_;
  iovec part = {&layout, sizeof(layout)};
  msghdr message = {};
  message.msg_name = &address;
  message.msg_namelen = AddressOf(name, &address);
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  PassedFiles passed;
  const std::array files = {memory.memory_.file()};
  passed.SendWith(&message, files);
  const OwnedFile socket = DatagramSocket();
  if (socket.valid() && sendmsg(socket.get(), &message, MSG_NOSIGNAL) == sizeof(layout)) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kNotFound, "door {}: {}", name, std::strerror(errno));
}

}  // namespace ringmaster::ring
