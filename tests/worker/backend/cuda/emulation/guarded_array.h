// Elements of one type in guarded memory. Thread-compatible.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "tests/worker/backend/cuda/emulation/guarded_memory.h"

namespace ringmaster::testing {

template <typename T>
class GuardedArray {
 public:
  explicit GuardedArray(size_t size) : memory_(size * sizeof(T)) {}
  explicit GuardedArray(const std::vector<T>& values) : GuardedArray(values.size()) {
    std::copy(values.begin(), values.end(), data());
  }

  [[nodiscard]] T* data() { return reinterpret_cast<T*>(memory_.data()); }
  [[nodiscard]] size_t size() const { return memory_.bytes() / sizeof(T); }
  [[nodiscard]] T& operator[](size_t i) { return data()[i]; }
  [[nodiscard]] std::vector<T> values() { return {data(), data() + size()}; }
  // The first element that is not as in `expected`, which has as many; -1 when all are.
  [[nodiscard]] ptrdiff_t FirstDifference(const std::vector<T>& expected) {
    const auto [mine, other] = std::mismatch(data(), data() + size(), expected.begin());
    return mine == data() + size() ? -1 : mine - data();
  }
  [[nodiscard]] bool intact() const { return memory_.intact(); }

 private:
  GuardedMemory memory_;
};

}  // namespace ringmaster::testing
