// The float mode of a computing thread: round to nearest even, subnormals kept (FTZ and DAZ off),
// every exception masked. Results must not depend on what a library left in the register. One
// thread each; x86-64 only, as the CPU code of this project is.
#pragma once

#include <xmmintrin.h>

#include "common/check.h"

namespace ringmaster {

// Sets the default mode for a scope and restores the former one after it.
class DefaultFloatMode {
 public:
  DefaultFloatMode() : former_(_mm_getcsr()) { _mm_setcsr(kDefault); }
  ~DefaultFloatMode() { _mm_setcsr(former_); }
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

  // Ends the process when this thread's mode is another: its results would be wrong silently.
  static void Check() {
    RING_CHECK((_mm_getcsr() & kModeBits) == (kDefault & kModeBits),
               "a computing thread flushes subnormals or rounds in another direction");
  }

 private:
  static constexpr unsigned kDefault = 0x1f80;
  static constexpr unsigned kModeBits = 0xe040;  // FTZ, rounding, DAZ
  const unsigned former_;
};

}  // namespace ringmaster
