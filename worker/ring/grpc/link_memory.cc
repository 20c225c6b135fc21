#include "worker/ring/grpc/link_memory.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "common/sha256.h"
#include "worker/process/passed_files.h"
#include "worker/ring/link.h"

namespace ringmaster::ring {
namespace {

// Of the queue; and places for payloads: what is under way on an edge of two members when nobody is
// late. Those behind go over the stream.
constexpr uint32_t kFrames = kWindowFrames;
static_assert((kFrames & (kFrames - 1)) == 0, "numbers of frames wrap around");
constexpr uint32_t kPlaces = kFrames / 2;
constexpr size_t kPage = 4096;
// Memories that a sender passes beside the link's own, at most: all of a ring of 16 on one host.
// What comes from farther is copied.
constexpr size_t kOthers = 14;

// Of an abstract socket: behind a byte of zero, the prefix and 128 random bits in hexadecimal.
constexpr std::string_view kDoorPrefix = "ringmaster-link-";

size_t Pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

using Counter = std::atomic<uint32_t>;
static_assert(Counter::is_always_lock_free, "two processes count");

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
bool NamesDoor(const std::string& name) {
  if (!name.starts_with(kDoorPrefix)) return false;
  const std::optional<std::string> bits = FromHex(name.substr(kDoorPrefix.size()));
  return bits && bits->size() == kTicketBytes;
}

}  // namespace

// In front of the places, in pages of its own. What one end writes again and again lies in a line
// of the cache of its own.
struct LinkMemory::Control {
  alignas(64) Counter pushed;
  alignas(64) Counter popped;
  alignas(64) Counter sleeps;             // the receiver, until somebody wakes it: 1
  alignas(64) std::array<char, 64> door;  // the receiver's, with zeros behind its name; or none
  struct alignas(64) Holders {
    Counter count;
  };
  std::array<Holders, kPlaces> holders;  // by place
};

// A frame in the queue.
struct alignas(64) LinkMemory::Entry {
  std::array<uint8_t, kHeaderBytes> header;
  Place at;  // of its payload, where that is not empty
};

size_t LinkMemory::ControlBytes() { return Pages(sizeof(Control) + kFrames * sizeof(Entry)); }

size_t LinkMemory::BytesOf(const Layout& layout) {
  return ControlBytes() + size_t{layout.places} * layout.place_bytes;
}

StatusOr<std::shared_ptr<LinkMemory>> LinkMemory::Create(size_t largest_payload) {
  Layout layout{kPlaces, static_cast<uint32_t>(Pages(largest_payload))};
  std::ranges::copy(RandomTicket(), layout.token.begin());
  // All that is in a new file is 0: every place is free, and the queue empty.
  RING_ASSIGN_OR_RETURN(
      SharedMemory memory,
      SharedMemory::Create("ringmaster-link", BytesOf(layout), SharedMemory::Access::kWrite));
  std::shared_ptr<LinkMemory> made(new LinkMemory(layout, std::move(memory)));
  if (StatusOr<MemoryDoor> door = MemoryDoor::Open(); door.ok()) {
    std::ranges::copy(door->name(), made->control().door.begin());
    made->door_ = *std::move(door);
  }
  return made;
}

std::string LinkMemory::Token() const { return Hex(layout_.token); }

StatusOr<std::shared_ptr<LinkMemory>> LinkMemory::Map(const Layout& layout, OwnedFile file) {
  if (layout.places != kPlaces || layout.place_bytes == 0 || layout.place_bytes % kPage != 0) {
    return InvalidArgument("memory of a link: {} places of {} bytes, expected {} of whole pages",
                           layout.places, layout.place_bytes, kPlaces);
  }
  RING_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Map(std::move(file), BytesOf(layout),
                                                               SharedMemory::Access::kWrite));
  return std::shared_ptr<LinkMemory>(new LinkMemory(layout, std::move(memory)));
}

LinkMemory::Control& LinkMemory::control() const {
  return *reinterpret_cast<Control*>(memory_.data());
}

LinkMemory::Entry& LinkMemory::entry(uint32_t number) const {
  auto* const entries = reinterpret_cast<Entry*>(memory_.data() + sizeof(Control));
  return entries[number % kFrames];
}

uint8_t* LinkMemory::place(uint32_t index) const {
  std::byte* const places = memory_.data() + ControlBytes();
  return reinterpret_cast<uint8_t*>(places) + size_t{index} * layout_.place_bytes;
}

std::shared_ptr<uint8_t> LinkMemory::Held(uint32_t index) {
  return {place(index), [self = shared_from_this(), index](uint8_t* /*place*/) {
            self->control().holders[index].count.fetch_sub(1, std::memory_order_acq_rel);
          }};
}

std::shared_ptr<uint8_t> LinkMemory::Lend(size_t bytes) {
  if (bytes > layout_.place_bytes) return nullptr;
  // The first one that is free: its pages were used last. Only this end takes places.
  for (uint32_t index = 0; index < kPlaces; ++index) {
    Counter& holders = control().holders[index].count;
    if (holders.load(std::memory_order_acquire) != 0) continue;
    holders.store(1, std::memory_order_relaxed);
    return Held(index);
  }
  return nullptr;
}

std::optional<uint32_t> LinkMemory::IndexOf(const Payload& payload) const {
  if (payload.pieces().size() != 1) return std::nullopt;
  const uint8_t* const start = payload.pieces().front().data();
  if (start < place(0) || start >= place(kPlaces)) return std::nullopt;
  const auto offset = static_cast<size_t>(start - place(0));
  if (offset % layout_.place_bytes != 0) return std::nullopt;
  return static_cast<uint32_t>(offset / layout_.place_bytes);
}

std::optional<uint32_t> LinkMemory::NumberOf(const std::shared_ptr<LinkMemory>& other) {
  const auto found = std::ranges::find(others_, other);
  const auto number = static_cast<uint32_t>(found - others_.begin()) + 1;
  if (found != others_.end()) return number;
  const std::array<char, 64>& door = control().door;
  const std::string name(door.begin(), std::ranges::find(door, '\0'));
  if (others_.size() == kOthers || !MemoryDoor::Pass(*other, name, Token()).ok()) {
    return std::nullopt;
  }
  others_.push_back(other);
  return number;
}

std::optional<LinkMemory::Place> LinkMemory::Stay(const Payload& payload,
                                                  const std::shared_ptr<LinkMemory>& received) {
  const auto hold = [](const LinkMemory& memory, uint32_t index) {
    memory.control().holders[index].count.fetch_add(1, std::memory_order_relaxed);
  };
  if (const auto index = IndexOf(payload)) {
    hold(*this, *index);
    return Place{0, *index};
  }
  if (received == nullptr) return std::nullopt;
  const auto at = [&](const std::shared_ptr<LinkMemory>& other) -> std::optional<Place> {
    const auto index = other->IndexOf(payload);
    const auto number = index ? NumberOf(other) : std::nullopt;
    if (!number) return std::nullopt;
    hold(*other, *index);
    return Place{*number, *index};
  };
  if (const auto found = at(received)) return found;
  for (const std::shared_ptr<LinkMemory>& other : received->others_) {
    if (const auto found = at(other)) return found;
  }
  return std::nullopt;
}

LinkMemory::Pushed LinkMemory::Push(const FrameHeader& header, const Payload& payload,
                                    const std::shared_ptr<LinkMemory>& received) {
  const uint32_t number = pushed();
  if (number - popped() >= kFrames) return Pushed::kNo;
  std::optional<Place> at;
  if (payload.size() > 0) {
    at = Stay(payload, received);
    if (!at) {
      const std::shared_ptr<uint8_t> copy = Lend(payload.size());
      if (copy == nullptr) return Pushed::kNo;
      uint8_t* end = copy.get();
      for (const Payload::Piece& piece : payload.pieces()) {
        end = std::ranges::copy(piece, end).out;
      }
      at = Stay(Payload({{copy.get(), payload.size()}}, copy), nullptr);
    }
  }
  Entry& next = entry(number);
  Encode(header, next.header.data());
  next.at = at.value_or(Place{});
  // This and the look behind it are in the other order in SetSleeps and who looks after it: one of
  // the two ends sees the other.
  control().pushed.store(number + 1, std::memory_order_seq_cst);
  if (control().sleeps.load(std::memory_order_seq_cst) == 0) return Pushed::kYes;
  return control().sleeps.exchange(0) != 0 ? Pushed::kSleeps : Pushed::kYes;
}

uint32_t LinkMemory::pushed() const { return control().pushed.load(std::memory_order_seq_cst); }

uint32_t LinkMemory::popped() const { return control().popped.load(std::memory_order_acquire); }

bool LinkMemory::HasNext(uint32_t streamed) const {
  if (empty()) return false;
  const StatusOr<FrameHeader> header = Decode(entry(popped()).header);
  // One that does not decode is an error of Pop's.
  return !header.ok() || static_cast<int32_t>(streamed - header->after) >= 0;
}

StatusOr<std::shared_ptr<LinkMemory>> LinkMemory::Numbered(uint32_t memory) {
  if (memory == 0) return shared_from_this();
  if (memory == others_.size() + 1 && memory <= kOthers && door_) {
    auto passed = door_->Receive(Token());
    if (passed.ok()) others_.push_back(*std::move(passed));
  }
  if (memory <= others_.size()) return others_[memory - 1];
  return InvalidArgument("frame place: of memory {}, and {} were passed", memory, others_.size());
}

StatusOr<Frame> LinkMemory::Pop() {
  const uint32_t number = popped();
  const Entry& next = entry(number);
  Frame frame;
  RING_ASSIGN_OR_RETURN(frame.header, Decode(next.header));
  const Place at = next.at;
  const size_t bytes = frame.header.payload_bytes;
  RING_ASSIGN_OR_RETURN(const std::shared_ptr<LinkMemory> memory, Numbered(at.memory));
  if (at.index >= kPlaces || bytes > memory->layout_.place_bytes) {
    return InvalidArgument("frame place: {} bytes in place {}, of {} with {} bytes each", bytes,
                           at.index, kPlaces, memory->layout_.place_bytes);
  }
  control().popped.store(number + 1, std::memory_order_release);
  if (bytes > 0) {
    std::shared_ptr<uint8_t> held = memory->Held(at.index);
    const Payload::Piece piece(held.get(), bytes);
    frame.payload = Payload({piece}, std::move(held));
  }
  frame.header.after = 0;  // of this link alone
  RING_RETURN_IF_ERROR(CheckPayload(frame));
  return frame;
}

void LinkMemory::SetSleeps(bool sleeps) {
  control().sleeps.store(sleeps ? 1 : 0, std::memory_order_seq_cst);
}

StatusOr<MemoryDoor> MemoryDoor::Open() {
  MemoryDoor door;
  door.socket_ = DatagramSocket();
  door.name_ = std::string(kDoorPrefix) + RandomName();
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

StatusOr<std::shared_ptr<LinkMemory>> MemoryDoor::Receive(const std::string& token) const {
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
    if (received.user != geteuid() || bytes != sizeof(layout)) continue;
    const std::string came(layout.token.begin(), layout.token.end());
    if (!SameTicket(came, FromHex(token).value_or(""))) continue;
    if (received.files.size() != 1) {
      return InvalidArgument("memory of a link: {} files, expected 1", received.files.size());
    }
    return LinkMemory::Map(layout, std::move(received.files.front()));
  }
}

Status MemoryDoor::Pass(const LinkMemory& memory, const std::string& name,
                        const std::string& token) {
  const std::optional<std::string> bits = FromHex(token);
  if (!NamesDoor(name) || !bits || bits->size() != kTicketBytes) {
    return Error(absl::StatusCode::kNotFound, "no door has such a name, or no link such a token");
  }
  sockaddr_un address;
  LinkMemory::Layout layout = memory.layout_;
  std::ranges::copy(*bits, layout.token.begin());
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
