// Memory that a link's two ends share where they are processes of one host. Frames from one to the
// other go through it: a queue has their headers, places have their payloads. The receiver of the
// frames makes it and passes it to the sender when it accepts the stream (docs/ring.md). One thread
// sends, one receives; a payload's holder may let go of it on any. Nothing here waits: a frame that
// finds no room goes over the stream, and a receiver that sleeps is woken over it.
//
// A place is free, or held: by the sender while it writes, by the receiver from when the frame is
// in the queue until its payload is gone. Holders are counted in the memory itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/files.h"
#include "common/status.h"
#include "common/ticket.h"
#include "worker/process/shared_memory.h"
#include "worker/ring/frame.h"
#include "worker/ring/payload.h"

namespace ringmaster::ring {

class LinkMemory : public std::enable_shared_from_this<LinkMemory> {
 public:
  // The receiver's: for payloads of `largest_payload` bytes at most. Pages are taken when a payload
  // is first written to them. RESOURCE_EXHAUSTED: the system has none left.
  [[nodiscard]] static StatusOr<std::shared_ptr<LinkMemory>> Create(size_t largest_payload);
  // What the stream says of it, so that the sender takes no other: 128 random bits, in hexadecimal.
  [[nodiscard]] std::string Token() const;

  // ---- The sender's.

  // A free place to write a payload of `bytes` to; null: none is free, or none is so large.
  [[nodiscard]] std::shared_ptr<uint8_t> Lend(size_t bytes);
  enum class Pushed : uint8_t {
    kNo,     // no room: nothing was done
    kYes,    // the receiver looks
    kSleeps  // the receiver waits to be woken
  };
  // Puts a frame behind those that are in the queue. The payload stays where it is if that is a
  // place, else it is copied to one. `header.after` counts frames of the stream.
  [[nodiscard]] Pushed Push(const FrameHeader& header, const Payload& payload);
  // Frames that were put there so far.
  [[nodiscard]] uint32_t pushed() const;

  // ---- The receiver's.

  // Whether a frame is there whose turn it is, behind `streamed` ones of the stream.
  [[nodiscard]] bool HasNext(uint32_t streamed) const;
  // That frame, header and checksum tested. INVALID_ARGUMENT: it is none.
  [[nodiscard]] StatusOr<Frame> Pop();
  // Frames that were taken so far.
  [[nodiscard]] uint32_t popped() const;
  // Whether all that was put there was taken.
  [[nodiscard]] bool empty() const { return pushed() == popped(); }
  // Says whether the receiver sleeps from now on; who sleeps looks once more first.
  void SetSleeps(bool sleeps);

 private:
  friend class MemoryDoor;
  struct Control;
  struct Entry;
  struct Layout {  // of what is passed, beside the file
    uint32_t places = 0;
    uint32_t place_bytes = 0;
    std::array<uint8_t, kTicketBytes> token = {};
  };
  LinkMemory(Layout layout, SharedMemory memory) : layout_(layout), memory_(std::move(memory)) {}
  [[nodiscard]] static size_t ControlBytes();
  [[nodiscard]] static size_t BytesOf(const Layout& layout);
  [[nodiscard]] static StatusOr<std::shared_ptr<LinkMemory>> Map(const Layout& layout,
                                                                 OwnedFile file);
  [[nodiscard]] Control& control() const;
  [[nodiscard]] Entry& entry(uint32_t number) const;
  [[nodiscard]] uint8_t* place(uint32_t index) const;
  // Whoever holds a place until the last copy of the pointer is gone.
  [[nodiscard]] std::shared_ptr<uint8_t> Held(uint32_t index);
  // The place that all of `payload` lies in from its start on, or kNone.
  static constexpr uint32_t kNone = ~0U;
  [[nodiscard]] uint32_t IndexOf(const Payload& payload) const;

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
  // What the receiver passed before it accepted the stream, by its token; what another user sent,
  // or somebody who does not know that, is dropped. NOT_FOUND: nothing came. INVALID_ARGUMENT: it
  // is not such memory.
  [[nodiscard]] StatusOr<std::shared_ptr<LinkMemory>> Receive(const std::string& token) const;

  // The receiver's: passes `memory` to who opened the door of that name. NOT_FOUND: nobody here
  // did, so that the sender is elsewhere.
  [[nodiscard]] static Status Pass(const LinkMemory& memory, const std::string& name);

 private:
  OwnedFile socket_;
  std::string name_;
};

}  // namespace ringmaster::ring
