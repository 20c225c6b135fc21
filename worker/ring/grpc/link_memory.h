// Memory that a link's two ends share where they are processes of one host. Frames from one to the
// other go through it: a queue has their headers, places have their payloads. The receiver of the
// frames makes it and passes it to the sender when it accepts the stream (docs/ring.md). One thread
// sends, one receives; a payload's holder may let go of it on any. Nothing here waits: a frame that
// finds no room goes over the stream, and a receiver that sleeps is woken over it.
//
// A place is free, or held: by the sender while it writes, by the receiver from when the frame is
// in the queue until its payload is gone. Holders are counted in the memory itself. What a receiver
// sends on stays at its place, too, once its successor knows the memory: it passes that before, and
// a frame says which memory its place is of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/files.h"
#include "common/status.h"
#include "common/ticket.h"
#include "worker/process/shared_memory.h"
#include "worker/ring/frame.h"
#include "worker/ring/payload.h"

namespace ringmaster::ring {

class LinkMemory;

// Where one end of a link gets memory from the other: a socket with a name that only this host and
// network namespace know, and that nothing comes in at without the door's secret: the kernel drops
// it (a filter), so that what a stranger sends is never this process's. Thread-compatible.
class MemoryDoor {
 public:
  // UNAVAILABLE: the system makes no such socket.
  [[nodiscard]] static StatusOr<MemoryDoor> Open();
  // The bits of its name, and its secret: for who is to pass memory here, and nobody else.
  static constexpr size_t kAddressBytes = 2 * kTicketBytes;
  [[nodiscard]] std::string address() const { return name_ + secret_; }
  // The next memory that was passed here, for payloads as of LinkMemory::Create; what another user
  // sent is dropped. NOT_FOUND: nothing came. INVALID_ARGUMENT: it is not such memory.
  // RESOURCE_EXHAUSTED: this process has no room for it.
  [[nodiscard]] StatusOr<std::shared_ptr<LinkMemory>> Receive(size_t largest_payload) const;

  // Passes `memory` to who opened the door of that address. NOT_FOUND: nobody here did, so that the
  // other end is elsewhere, or its door is full.
  [[nodiscard]] static Status Pass(const LinkMemory& memory, const std::string& address);

 private:
  OwnedFile socket_;
  std::string name_, secret_;  // kTicketBytes each
};

class LinkMemory : public std::enable_shared_from_this<LinkMemory> {
 public:
  // The receiver's: for payloads of `largest_payload` bytes at most. Pages are taken when a payload
  // is first written to them. RESOURCE_EXHAUSTED: the system has none left.
  [[nodiscard]] static StatusOr<std::shared_ptr<LinkMemory>> Create(size_t largest_payload);

  // ---- The sender's.

  // A free place to write a payload of `bytes` to; null: none is free, or none is so large.
  [[nodiscard]] std::shared_ptr<uint8_t> Lend(size_t bytes);
  enum class Pushed : uint8_t {
    kNo,     // no room: nothing was done
    kYes,    // the receiver looks
    kSleeps  // the receiver waits to be woken
  };
  // Puts a frame behind those that are in the queue. The payload stays where it is if that is a
  // place, here or where frames `received` from this worker's predecessor lie (null: it has none),
  // and the receiver knows that memory by now, else it is copied to one. `header.after` counts
  // frames of the stream.
  [[nodiscard]] Pushed Push(const FrameHeader& header, const Payload& payload,
                            const std::shared_ptr<LinkMemory>& received);
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
  LinkMemory(size_t largest_payload, SharedMemory memory)
      : largest_payload_(largest_payload), memory_(std::move(memory)) {}
  [[nodiscard]] static size_t ControlBytes();
  [[nodiscard]] static size_t BytesFor(size_t largest_payload);
  [[nodiscard]] static StatusOr<std::shared_ptr<LinkMemory>> Map(size_t largest_payload,
                                                                 OwnedFile file);
  [[nodiscard]] Control& control() const;
  [[nodiscard]] Entry& entry(uint32_t number) const;
  [[nodiscard]] uint8_t* place(uint32_t index) const;
  [[nodiscard]] size_t place_bytes() const;
  // Whoever holds a place until the last copy of the pointer is gone.
  [[nodiscard]] std::shared_ptr<uint8_t> Held(uint32_t index);

  // A place: of this memory (0), or of the i-th of `others_`, and its number there.
  struct Place {
    uint32_t memory = 0;
    uint32_t index = 0;
  };
  // The place that all of `payload` lies in from its start on.
  [[nodiscard]] std::optional<uint32_t> IndexOf(const Payload& payload) const;
  // Sender: where the payload can stay, held once more for the receiver.
  [[nodiscard]] std::optional<Place> Stay(const Payload& payload,
                                          const std::shared_ptr<LinkMemory>& received);
  // Sender: which number the receiver knows `other` by, if it does; passes it, once.
  [[nodiscard]] std::optional<uint32_t> NumberOf(const std::shared_ptr<LinkMemory>& other);
  // Receiver: takes what was passed since, and says so in the memory.
  void TakeOthers();

  const size_t largest_payload_;
  const SharedMemory memory_;
  // What the sender passed, in this order; null: the receiver has no room for it. Each end's own
  // list: of the sender's thread or the receiver's.
  std::vector<std::shared_ptr<LinkMemory>> others_;
  std::optional<MemoryDoor> door_;  // of the receiver, for those
};

}  // namespace ringmaster::ring
