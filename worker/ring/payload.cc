#include "worker/ring/payload.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/crc32c.h"
#include "common/mutex.h"

namespace ringmaster::ring {

Payload::Payload(std::vector<uint8_t> bytes) {
  auto owner = std::make_shared<const std::vector<uint8_t>>(std::move(bytes));
  size_ = owner->size();
  if (size_ != 0) pieces_.emplace_back(*owner);
  owner_ = std::move(owner);
}

Payload::Payload(std::vector<Piece> pieces, std::shared_ptr<const void> owner)
    : pieces_(std::move(pieces)), owner_(std::move(owner)) {
  for (const Piece& piece : pieces_) size_ += piece.size();
}

uint32_t Payload::Crc32c() const {
  uint32_t crc = 0;
  for (const Piece& piece : pieces_) crc = ExtendCrc32c(crc, piece);
  return crc;
}

std::vector<uint8_t> Payload::Copy() const {
  std::vector<uint8_t> bytes;
  bytes.reserve(size_);
  for (const Piece& piece : pieces_) bytes.insert(bytes.end(), piece.begin(), piece.end());
  return bytes;
}

const uint8_t* PayloadReader::Take(size_t count, uint8_t* side) {
  RING_CHECK(count <= remaining_, "read past the end of a payload");
  remaining_ -= count;
  while (!pieces_.empty() && offset_ == pieces_.front().size()) {
    pieces_ = pieces_.subspan(1);
    offset_ = 0;
  }
  if (pieces_.empty() || pieces_.front().size() - offset_ >= count) {
    const uint8_t* const place = pieces_.empty() ? side : pieces_.front().data() + offset_;
    offset_ += count;
    return place;
  }
  for (size_t done = 0; done < count;) {
    const Payload::Piece piece = pieces_.front().subspan(offset_);
    const size_t part = std::min(piece.size(), count - done);
    if (part != 0) std::memcpy(side + done, piece.data(), part);
    done += part;
    offset_ += part;
    if (part == piece.size() && done < count) {
      pieces_ = pieces_.subspan(1);
      offset_ = 0;
    }
  }
  return side;
}

struct BufferPool::Shelf {
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(uint8_t* buffer) const { ::operator delete(buffer, kAlignment); }
  };
  using Buffer = std::unique_ptr<uint8_t, Free>;

  const size_t buffer_bytes;
  const size_t keep;
  Mutex mu;
  std::vector<Buffer> unused ABSL_GUARDED_BY(mu);
  size_t out ABSL_GUARDED_BY(mu) = 0;

  Shelf(size_t bytes, size_t keep_buffers) : buffer_bytes(bytes), keep(keep_buffers) {
    unused.reserve(keep);
  }

  Buffer Take() {
    {
      MutexLock lock(mu);
      ++out;
      if (!unused.empty()) {
        Buffer buffer = std::move(unused.back());
        unused.pop_back();
        return buffer;
      }
    }
    return Buffer(static_cast<uint8_t*>(::operator new(buffer_bytes, kAlignment)));
  }

  void Return(Buffer buffer) {
    MutexLock lock(mu);
    --out;
    if (unused.size() < keep) unused.push_back(std::move(buffer));
  }
};

BufferPool::BufferPool(size_t buffer_bytes, size_t keep, Lend lend)
    : shelf_(std::make_shared<Shelf>(buffer_bytes, keep)), lend_(std::move(lend)) {}

std::shared_ptr<uint8_t> BufferPool::Acquire() {
  if (lend_ != nullptr) {
    if (std::shared_ptr<uint8_t> lent = lend_(shelf_->buffer_bytes); lent != nullptr) return lent;
  }
  return {shelf_->Take().release(),
          [shelf = shelf_](uint8_t* buffer) { shelf->Return(Shelf::Buffer(buffer)); }};
}

size_t BufferPool::out() const {
  MutexLock lock(shelf_->mu);
  return shelf_->out;
}

size_t BufferPool::buffer_bytes() const { return shelf_->buffer_bytes; }

}  // namespace ringmaster::ring
