// One contiguous array that starts at a multiple of 64 bytes, as kernels and vector code want it;
// a large one lies in huge pages where the kernel has them, so that a pass over it does not wait
// for the page table. Its size never changes, so its address does not either. Thread-compatible.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

namespace ringmaster {

// What an arena holds at first. kAnything touches no memory.
enum class ArenaStart : bool { kZero, kAnything };

template <typename T>
class Arena {
 public:
  Arena() = default;
  explicit Arena(size_t size, ArenaStart start = ArenaStart::kZero) : size_(size) {
    if (size == 0) return;
    const size_t bytes = (size * sizeof(T) + 63) / 64 * 64;
    data_.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
    if (!data_) throw std::bad_alloc();
    AskForHugePages(bytes);
    if (start == ArenaStart::kZero) std::fill_n(data_.get(), size, T{});
  }
  // Memory of somebody else, who outlives it, as it is.
  explicit Arena(std::span<T> memory) : data_(memory.data(), {false}), size_(memory.size()) {}

  std::span<T> span() { return {data_.get(), size_}; }
  std::span<const T> span() const { return {data_.get(), size_}; }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  // For the whole pages of a large one.
  void AskForHugePages(size_t bytes) {
    constexpr size_t kPage = 4096;
    constexpr size_t kLarge = size_t{4} << 20;
    if (bytes < kLarge) return;
    auto* const begin = reinterpret_cast<std::byte*>(data_.get());
    const size_t before = -reinterpret_cast<uintptr_t>(begin) % kPage;
    (void)madvise(begin + before, (bytes - before) / kPage * kPage, MADV_HUGEPAGE);
  }

  struct Free {
    bool owned = true;
    void operator()(T* data) const {
      if (owned) std::free(data);
    }
  };
  std::unique_ptr<T[], Free> data_;
  size_t size_ = 0;
};

}  // namespace ringmaster
