// The bytes of a frame, by reference: one or several pieces of memory that somebody keeps alive.
// A received payload lies where the transport put it and is forwarded without a copy. Payload is a
// value whose copies share the memory, which nobody changes any more; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace ringmaster::ring {

class Payload {
 public:
  using Piece = std::span<const uint8_t>;

  Payload() = default;
  // One piece that the payload owns.
  explicit Payload(std::vector<uint8_t> bytes);
  // Pieces that live as long as `owner`.
  Payload(std::vector<Piece> pieces, std::shared_ptr<const void> owner);

  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] std::span<const Piece> pieces() const { return pieces_; }
  [[nodiscard]] const std::shared_ptr<const void>& owner() const { return owner_; }
  [[nodiscard]] uint32_t Crc32c() const;
  // One contiguous copy; for tests and small payloads.
  [[nodiscard]] std::vector<uint8_t> Copy() const;

 private:
  std::vector<Piece> pieces_;
  std::shared_ptr<const void> owner_;
  size_t size_ = 0;
};

// Reads a payload from front to back. Thread-compatible; the payload must outlive it.
class PayloadReader {
 public:
  explicit PayloadReader(const Payload& payload)
      : pieces_(payload.pieces()), remaining_(payload.size()) {}

  [[nodiscard]] size_t remaining() const { return remaining_; }
  // The next `count` bytes, count <= remaining(): where they lie when one piece holds them, else
  // copied to `side`, which has room for `count`. At any alignment.
  [[nodiscard]] const uint8_t* Take(size_t count, uint8_t* side);

 private:
  std::span<const Payload::Piece> pieces_;
  size_t offset_ = 0;  // into the first piece
  size_t remaining_;
};

// Buffers of one size for payloads to send, handed out again in LIFO order: the one that came back
// last is still in cache. Thread-safe: a buffer comes back on whatever thread drops it last, which
// for a sent payload is one of the transport's, and may outlive the pool.
class BufferPool {
 public:
  // Somebody else's memory of so many bytes, which comes first; null: there is none just now.
  using Lend = std::function<std::shared_ptr<uint8_t>(size_t bytes)>;

  // `keep`: how many unused buffers stay allocated.
  BufferPool(size_t buffer_bytes, size_t keep, Lend lend = nullptr);

  // buffer_bytes() bytes of any content, at a multiple of 64.
  [[nodiscard]] std::shared_ptr<uint8_t> Acquire();
  [[nodiscard]] size_t buffer_bytes() const;
  // Buffers that somebody holds, but for those that were lent.
  [[nodiscard]] size_t out() const;

 private:
  struct Shelf;
  std::shared_ptr<Shelf> shelf_;
  const Lend lend_;
};

}  // namespace ringmaster::ring
