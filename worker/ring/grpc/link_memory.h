// Memory that a link's two ends share where they are processes of one host: payloads lie in it, and
// their frames, which come over the stream as ever, say in which place (FrameHeader::place). The
// receiver of the frames makes it and passes it to the sender when it accepts the stream
// (docs/ring.md). Thread-safe. It knows no order of frames, and nothing waits for it: a payload
// that finds no place goes over the stream.
//
// A place is free, or held: by the sender while it writes, by the receiver from when the sender has
// handed it over until it has read it, by both between. Holders are counted in the memory itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/files.h"
#include "common/status.h"
#include "worker/process/shared_memory.h"
#include "worker/ring/payload.h"

namespace ringmaster::ring {

class LinkMemory : public std::enable_shared_from_this<LinkMemory> {
 public:
  // Payloads of fewer bytes are sent with their header: that is less work than a place.
  static constexpr size_t kLeastPayload = size_t{4} << 10;

  // The receiver's: a number of places, each for a payload of `largest_payload` bytes. Pages are
  // taken when a payload is first written to them. RESOURCE_EXHAUSTED: the system has none left.
  [[nodiscard]] static StatusOr<std::shared_ptr<LinkMemory>> Create(size_t largest_payload);

  // The sender's: a free place to write a payload of `bytes` to; null: none is free, or it would
  // not pay.
  [[nodiscard]] std::shared_ptr<uint8_t> Lend(size_t bytes);
  // The place that `payload` lies in, or was copied to, which the receiver holds from now on, as
  // the place of its frame's header; 0: none.
  [[nodiscard]] uint32_t Put(const Payload& payload);

  // The receiver's: what lies in the place of a frame, which is free again behind the last copy of
  // the payload. INVALID_ARGUMENT: there is no such place, or it has not so many bytes.
  [[nodiscard]] StatusOr<Payload> Take(uint32_t place, size_t bytes);

 private:
  friend class MemoryDoor;
  struct Layout {  // of what is passed, beside the file
    uint32_t places = 0;
    uint32_t place_bytes = 0;
  };
  LinkMemory(Layout layout, SharedMemory memory) : layout_(layout), memory_(std::move(memory)) {}
  [[nodiscard]] static size_t BytesOf(const Layout& layout);
  [[nodiscard]] static StatusOr<std::shared_ptr<LinkMemory>> Map(const Layout& layout,
                                                                 OwnedFile file);
  [[nodiscard]] uint8_t* at(uint32_t index) const;
  // Whoever holds a place until the last copy of the pointer is gone.
  [[nodiscard]] std::shared_ptr<uint8_t> Held(uint32_t index);

  const Layout layout_;
  const SharedMemory memory_;
};

// Where a sender gets the memory of its link: a socket with a name that only this host and network
// namespace know. Thread-compatible.
class MemoryDoor {
 public:
  // UNAVAILABLE: the system makes no such socket.
  [[nodiscard]] static StatusOr<MemoryDoor> Open();
  // For the hello of the stream.
  [[nodiscard]] const std::string& name() const { return name_; }
  // What the receiver passed before it accepted the stream; what others than this user sent is
  // dropped. NOT_FOUND: nothing came. INVALID_ARGUMENT: it is not such memory.
  [[nodiscard]] StatusOr<std::shared_ptr<LinkMemory>> Receive() const;

  // The receiver's: passes `memory` to who opened the door of that name. NOT_FOUND: nobody here
  // did, so that the sender is elsewhere.
  [[nodiscard]] static Status Pass(const LinkMemory& memory, const std::string& name);

 private:
  OwnedFile socket_;
  std::string name_;
};

}  // namespace ringmaster::ring
