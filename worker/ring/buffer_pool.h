// Buffers of one size for payloads to send, handed out again in LIFO order: the one that came back
// last is still in cache. Thread-safe: a buffer comes back on whatever thread drops it last, which
// for a sent payload is one of the transport's, and may outlive the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace ringmaster::ring {

class BufferPool {
 public:
  // `keep`: how many unused buffers stay allocated.
  BufferPool(size_t buffer_bytes, size_t keep);

  // buffer_bytes() bytes of any content, at a multiple of 64.
  [[nodiscard]] std::shared_ptr<uint8_t> Acquire();
  [[nodiscard]] size_t buffer_bytes() const;
  // Buffers that somebody holds.
  [[nodiscard]] size_t out() const;

 private:
  struct Shelf;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace ringmaster::ring
