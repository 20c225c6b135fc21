// Memory that two processes see: a file without a name, sealed to its size, and this process's view
// of it. Owned by whoever maps it; thread-compatible. It knows nothing of what lies in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "common/files.h"
#include "common/status.h"

namespace ringmaster {

class SharedMemory {
 public:
  enum class Access : uint8_t { kRead, kWrite };  // kWrite: both

  // Zeros, which the caller may write, and others as `others` says. `what` stands in messages and
  // in /proc. RESOURCE_EXHAUSTED: the system has none left.
  [[nodiscard]] static StatusOr<SharedMemory> Create(const char* what, size_t bytes, Access others);
  // What another process made: INVALID_ARGUMENT unless it holds `bytes` and can no longer shrink.
  [[nodiscard]] static StatusOr<SharedMemory> Map(OwnedFile file, size_t bytes, Access access);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  [[nodiscard]] int file() const { return file_.get(); }
  [[nodiscard]] size_t bytes() const { return bytes_; }
  // At a page's start.
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::span<std::byte> span() const { return {data_, bytes_}; }

 private:
  OwnedFile file_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace ringmaster
