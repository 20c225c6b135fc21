// Division by a number that a kernel gets at launch, as a product: an integer division takes a GPU
// some twenty instructions. For kernels and for host code; a value.
#pragma once

#include <cstdint>

#include "common/host_device.h"

namespace ringmaster::cuda {

// Granlund and Montgomery, "Division by invariant integers using multiplication" (PLDI 1994),
// section 4: with 2^(s-1) < divisor <= 2^s and m = ceil(2^(31+s) / divisor) the quotient of any
// x < 2^31 is floor(x m / 2^(31+s)), because m divisor - 2^(31+s) < divisor <= 2^s.
class Divisor {
 public:
  Divisor() = default;
  // 1 to 2^31 - 1.
  explicit Divisor(uint32_t divisor) : divisor_(divisor) {
    while ((uint64_t{1} << (shift_ - 31)) < divisor) ++shift_;
    multiplier_ = static_cast<uint32_t>(((uint64_t{1} << shift_) + divisor - 1) / divisor);
  }

  // Of x < 2^31.
  [[nodiscard]] RING_HOST_DEVICE uint32_t Quotient(uint32_t x) const {
    return static_cast<uint32_t>((uint64_t{x} * multiplier_) >> shift_);
  }
  [[nodiscard]] RING_HOST_DEVICE uint32_t divisor() const { return divisor_; }

 private:
  uint32_t multiplier_ = uint32_t{1} << 31;
  uint32_t shift_ = 31;
  uint32_t divisor_ = 1;
};

}  // namespace ringmaster::cuda
