// One contiguous array that starts at a multiple of 64 bytes, as kernels and vector code want it;
// zero at first. Its size never changes, so its address does not either. Thread-compatible.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

namespace ringmaster::worker {

template <typename T>
class Arena {
 public:
  Arena() = default;
  explicit Arena(size_t size) : size_(size) {
    if (size == 0) return;
    const size_t bytes = (size * sizeof(T) + 63) / 64 * 64;
    data_.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
    if (!data_) throw std::bad_alloc();
    std::fill_n(data_.get(), size, T{});
  }

  std::span<T> span() { return {data_.get(), size_}; }
  std::span<const T> span() const { return {data_.get(), size_}; }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  std::unique_ptr<T[], Free> data_;
  size_t size_ = 0;
};

}  // namespace ringmaster::worker
