// Memory of one core that grows in place: address space is reserved once, so the addresses that
// kernels were bound to stay valid when a larger program is bound later. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "common/status.h"

namespace ringmaster::cpu {

// Of every arena and buffer.
inline constexpr size_t kAlignment = 64;
constexpr size_t AlignUp(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

class Arena {
 public:
  // Reserves addresses for `reserve_bytes`; takes memory only as it is touched.
  [[nodiscard]] static StatusOr<Arena> Create(size_t reserve_bytes);
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  // Makes at least `bytes` from data() on usable. RESOURCE_EXHAUSTED beyond the reserved range.
  [[nodiscard]] Status Grow(size_t bytes);
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  Arena(std::byte* data, size_t reserved) : data_(data), reserved_(reserved) {}

  std::byte* data_;
  size_t reserved_;
  size_t size_ = 0;
};

// A fixed run of bytes that starts at a multiple of kAlignment. Thread-compatible.
class AlignedBuffer {
 public:
  // kAny: memory is taken as it is written.
  enum class Content : uint8_t { kZero, kAny };

  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes, Content content = Content::kZero) : bytes_(bytes) {
    const size_t rounded = AlignUp(bytes == 0 ? 1 : bytes);
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
    if (data_ == nullptr) throw std::bad_alloc();
    if (content == Content::kZero) std::memset(data_.get(), 0, rounded);
  }

  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] size_t size() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t bytes_ = 0;
};

}  // namespace ringmaster::cpu
