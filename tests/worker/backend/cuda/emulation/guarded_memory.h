// Memory that a kernel gets: at an address on which the widest of its packs may begin, with a page
// behind it that may not be touched, no more bytes in front of that page than the address costs,
// which the race check tells of when a kernel reads them, and bytes around it that must not change.
// A GPU's buffers begin at multiples of 256 bytes and are padded to them; products alone may rely
// on where theirs begin. Not thread-safe.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "tests/worker/backend/cuda/emulation/race_check.h"

namespace ringmaster::testing {

class GuardedMemory {
 public:
  static constexpr size_t kAlignment = 32;  // of eight float32, the widest pack
  static constexpr size_t kInFront = 256;
  static constexpr unsigned char kFill = 0xa5;

  explicit GuardedMemory(size_t bytes, size_t alignment = kAlignment) : bytes_(bytes) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t room = (bytes + alignment - 1) / alignment * alignment;
    mapped_ = (room + kInFront + page - 1) / page * page + page;
    void* const memory =
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    begin_ = static_cast<unsigned char*>(memory);
    data_ = begin_ + mapped_ - page - room;
    std::memset(begin_, kFill, mapped_ - page);
    if (mprotect(begin_ + mapped_ - page, page, PROT_NONE) != 0) std::abort();
    if (bytes < room) ForbidFrom(data_ + bytes);
  }
  ~GuardedMemory() {
    AllowFrom(data_ + bytes_);
    munmap(begin_, mapped_);
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  [[nodiscard]] unsigned char* data() { return data_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }
  // Whether the bytes before and after are as they were.
  [[nodiscard]] bool intact() const {
    const unsigned char* const end = begin_ + mapped_ - static_cast<size_t>(sysconf(_SC_PAGESIZE));
    for (const unsigned char* at = begin_; at < end; ++at) {
      const bool inside = at >= data_ && at < data_ + bytes_;
      if (!inside && *at != kFill) return false;
    }
    return true;
  }

 private:
  const size_t bytes_;
  size_t mapped_;
  unsigned char* begin_;
  unsigned char* data_;
};

}  // namespace ringmaster::testing
