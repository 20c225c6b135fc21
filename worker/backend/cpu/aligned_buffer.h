// A fixed run of bytes that starts at a multiple of kAlignment. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "worker/backend/cpu/arena.h"

namespace ringmaster::cpu {

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
