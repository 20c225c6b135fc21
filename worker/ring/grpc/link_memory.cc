#include "worker/ring/grpc/link_memory.h"

#include <arpa/inet.h>
#include <linux/filter.h>
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
socklen_t AddressOf(const std::string& bits, sockaddr_un* address) {
  const std::string name = std::string(kDoorPrefix) + Hex(bits);
  *address = {};
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

OwnedFile DatagramSocket() {
  return OwnedFile(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Has the kernel drop what is not exactly `secret`, in the call of who sends it: files that come
// with it are closed there, and take no room here (classic BPF, packet(7)).
bool AdmitOnly(int socket, const std::string& secret) {
  std::vector<sock_filter> program = {BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0)};
  const auto demand = [&](uint32_t value) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, 0));
  };
  demand(static_cast<uint32_t>(secret.size()));
  for (uint32_t at = 0; at < secret.size(); at += sizeof(uint32_t)) {
    uint32_t word;
    std::memcpy(&word, secret.data() + at, sizeof(word));
    program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at));
    demand(ntohl(word));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, ~0U));
  const sock_fprog filter = {static_cast<unsigned short>(program.size()), program.data()};
  return setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) == 0;
}

}  // namespace

// In front of the places, in pages of its own. What one end writes again and again lies in a line
// of the cache of its own.
struct LinkMemory::Control {
  alignas(64) Counter pushed;
  alignas(64) Counter popped;
  alignas(64) Counter sleeps;  // the receiver, until somebody wakes it: 1
  // Memories that the sender passed, and of each whether the receiver has it: 0 is not yet.
  alignas(64) Counter passed;
  enum : uint32_t { kHas = 1, kHasNot = 2 };
  std::array<Counter, kOthers> taken;
  // Address of the receiver's door; or zeros.
  alignas(64) std::array<char, MemoryDoor::kAddressBytes> door;
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

size_t LinkMemory::BytesFor(size_t largest_payload) {
  return ControlBytes() + kPlaces * Pages(largest_payload);
}

StatusOr<std::shared_ptr<LinkMemory>> LinkMemory::Create(size_t largest_payload) {
  // All that is in a new file is 0: every place is free, and the queue empty.
  RING_ASSIGN_OR_RETURN(SharedMemory memory,
                        SharedMemory::Create("ringmaster-link", BytesFor(largest_payload),
                                             SharedMemory::Access::kWrite));
  std::shared_ptr<LinkMemory> made(new LinkMemory(largest_payload, std::move(memory)));
  if (StatusOr<MemoryDoor> door = MemoryDoor::Open(); door.ok()) {
    std::ranges::copy(door->address(), made->control().door.begin());
    made->door_ = *std::move(door);
  }
  return made;
}

StatusOr<std::shared_ptr<LinkMemory>> LinkMemory::Map(size_t largest_payload, OwnedFile file) {
  RING_ASSIGN_OR_RETURN(
      SharedMemory memory,
      SharedMemory::Map(std::move(file), BytesFor(largest_payload), SharedMemory::Access::kWrite));
  return std::shared_ptr<LinkMemory>(new LinkMemory(largest_payload, std::move(memory)));
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
  return reinterpret_cast<uint8_t*>(places) + index * place_bytes();
}

size_t LinkMemory::place_bytes() const { return Pages(largest_payload_); }

std::shared_ptr<uint8_t> LinkMemory::Held(uint32_t index) {
  return {place(index), [self = shared_from_this(), index](uint8_t* /*place*/) {
            self->control().holders[index].count.fetch_sub(1, std::memory_order_acq_rel);
          }};
}

std::shared_ptr<uint8_t> LinkMemory::Lend(size_t bytes) {
  if (bytes > largest_payload_) return nullptr;
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
  if (offset % place_bytes() != 0) return std::nullopt;
  return static_cast<uint32_t>(offset / place_bytes());
}

std::optional<uint32_t> LinkMemory::NumberOf(const std::shared_ptr<LinkMemory>& other) {
  const auto index = static_cast<size_t>(std::ranges::find(others_, other) - others_.begin());
  if (index < others_.size()) {
    if (control().taken[index].load(std::memory_order_acquire) != Control::kHas) return {};
    return static_cast<uint32_t>(index) + 1;
  }
  const std::string door(control().door.begin(), control().door.end());
  if (index == kOthers || !MemoryDoor::Pass(*other, door).ok()) return {};
  others_.push_back(other);
  control().passed.store(static_cast<uint32_t>(others_.size()), std::memory_order_release);
  return {};
}

void LinkMemory::TakeOthers() {
  const size_t passed = std::min<size_t>(control().passed.load(std::memory_order_acquire), kOthers);
  while (others_.size() < passed) {
    std::shared_ptr<LinkMemory> other;
    if (door_) other = door_->Receive(largest_payload_).value_or(nullptr);
    control().taken[others_.size()].store(other != nullptr ? Control::kHas : Control::kHasNot,
                                          std::memory_order_release);
    others_.push_back(std::move(other));
  }
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
    if (other == nullptr) continue;
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

StatusOr<Frame> LinkMemory::Pop() {
  TakeOthers();
  const uint32_t number = popped();
  const Entry& next = entry(number);
  Frame frame;
  RING_ASSIGN_OR_RETURN(frame.header, Decode(next.header));
  const Place at = next.at;
  const size_t bytes = frame.header.payload_bytes;
  if (at.memory > others_.size() || (at.memory > 0 && others_[at.memory - 1] == nullptr)) {
    return InvalidArgument("frame place: of memory {}, of {} that were passed", at.memory,
                           others_.size());
  }
  const auto memory = at.memory == 0 ? shared_from_this() : others_[at.memory - 1];
  if (at.index >= kPlaces || bytes > largest_payload_) {
    return InvalidArgument("frame place: {} bytes in place {}, of {} for {} bytes each", bytes,
                           at.index, kPlaces, largest_payload_);
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
  door.name_ = RandomTicket();
  door.secret_ = RandomTicket();
  sockaddr_un address;
  const socklen_t length = AddressOf(door.name_, &address);
  const int on = 1;
  if (!door.socket_.valid() || !AdmitOnly(door.socket_.get(), door.secret_) ||
      setsockopt(door.socket_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0 ||
      bind(door.socket_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    return Error(absl::StatusCode::kUnavailable, "no socket for the memory of a link: {}",
                 std::strerror(errno));
  }
  return door;
}

StatusOr<std::shared_ptr<LinkMemory>> MemoryDoor::Receive(size_t largest_payload) const {
  while (true) {
    std::array<char, kTicketBytes> secret;
    iovec part = {secret.data(), secret.size()};
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
    if (received.files.size() != 1) {
      return Error(absl::StatusCode::kResourceExhausted,
                   "memory of a link: {} files came, expected 1; has this process too many open?",
                   received.files.size());
    }
    return LinkMemory::Map(largest_payload, std::move(received.files.front()));
  }
}

Status MemoryDoor::Pass(const LinkMemory& memory, const std::string& address) {
  if (address.size() != kAddressBytes) {
    return Error(absl::StatusCode::kNotFound, "no door has an address of {} bytes", address.size());
  }
  const std::string name = address.substr(0, kTicketBytes);
  std::string secret = address.substr(kTicketBytes);
  sockaddr_un to;
  iovec part = {secret.data(), secret.size()};
  msghdr message = {};
  message.msg_name = &to;
  message.msg_namelen = AddressOf(name, &to);
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  PassedFiles passed;
  const std::array files = {memory.memory_.file()};
  passed.SendWith(&message, files);
  const OwnedFile socket = DatagramSocket();
  if (socket.valid() &&
      sendmsg(socket.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(secret.size())) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kNotFound, "no door for the memory of a link: {}",
               std::strerror(errno));
}

}  // namespace ringmaster::ring
