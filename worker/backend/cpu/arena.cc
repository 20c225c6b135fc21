#include "worker/backend/cpu/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "worker/backend/failure.h"
namespace ringmaster::cpu {
namespace {
constexpr size_t kHugePage = size_t{2} << 20;
size_t RoundToHugePages(size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }
}  // namespace

StatusOr<Arena> Arena::Create(size_t reserve_bytes) {
  const size_t reserved = RoundToHugePages(std::max<size_t>(reserve_bytes, 1));
  void* data =
      mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return OutOfMemory(
        "cannot reserve {} bytes of address space for a core: {}; try a smaller "
        "--memory-per-core",
        reserved, std::strerror(errno));
  }
  return Arena(static_cast<std::byte*>(data), reserved);
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), reserved_(other.reserved_), size_(other.size_) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(reserved_, other.reserved_);
  std::swap(size_, other.size_);
  return *this;
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, reserved_);
}

Status Arena::Grow(size_t bytes) {
  if (bytes <= size_) return absl::OkStatus();
  const size_t grown = RoundToHugePages(bytes);
  if (grown > reserved_) {
    return OutOfMemory("a core needs {} bytes, and {} are reserved for it", bytes, reserved_);
  }
  if (mprotect(data_, grown, PROT_READ | PROT_WRITE) != 0) {
    return OutOfMemory("cannot get {} bytes for a core: {}", bytes, std::strerror(errno));
  }
  // Only advice: a kernel without transparent huge pages refuses, and nothing is lost.
  (void)madvise(data_, grown, MADV_HUGEPAGE);
  size_ = grown;
  return absl::OkStatus();
}

}  // namespace ringmaster::cpu
