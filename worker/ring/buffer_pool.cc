#include "worker/ring/buffer_pool.h"

#include <new>
#include <vector>

#include "common/mutex.h"

namespace ringmaster::ring {

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

BufferPool::BufferPool(size_t buffer_bytes, size_t keep)
    : shelf_(std::make_shared<Shelf>(buffer_bytes, keep)) {}

std::shared_ptr<uint8_t> BufferPool::Acquire() {
  return {shelf_->Take().release(),
          [shelf = shelf_](uint8_t* buffer) { shelf->Return(Shelf::Buffer(buffer)); }};
}

size_t BufferPool::out() const {
  MutexLock lock(shelf_->mu);
  return shelf_->out;
}

size_t BufferPool::buffer_bytes() const { return shelf_->buffer_bytes; }

}  // namespace ringmaster::ring
