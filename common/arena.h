// One contiguous array that starts at a multiple of 64 bytes, as kernels and vector code want it;
// a large one lies in huge pages where the kernel has them, so that a pass over it does not wait for
// the page table. Its size never changes, so its address does not either. Thread-compatible.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
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
    const size_t alignment = size * sizeof(T) >= kLarge ? kHugePage : 64;
    const size_t bytes = (size * sizeof(T) + alignment - 1) / alignment * alignment;
    data_.reset(static_cast<T*>(std::aligned_alloc(alignment, bytes)));
    if (!data_) throw std::bad_alloc();
    if (alignment == kHugePage) (void)madvise(data_.get(), bytes, MADV_HUGEPAGE);
    if (start == ArenaStart::kZero) std::fill_n(data_.get(), size, T{});
  }

  std::span<T> span() { return {data_.get(), size_}; }
  std::span<const T> span() const { return {data_.get(), size_}; }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  static constexpr size_t kHugePage = size_t{2} << 20;
  static constexpr size_t kLarge = 2 * kHugePage;

  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  std::unique_ptr<T[], Free> data_;
  size_t size_ = 0;
};

}  // namespace ringmaster
