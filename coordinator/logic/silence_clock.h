// The clock by which workers are silent: it stands still while the coordinator does not listen, so
// that no worker is accused of what the coordinator's own load or disk did. A value, owned by
// Logic, loop thread only.
#pragma once

#include <chrono>
#include <utility>

#include "common/planted_bug.h"

namespace ringmaster::coordinator {

class SilenceClock {
 public:
  using Time = std::chrono::milliseconds;
  // Between two events, where there are at least ten a second.
  static constexpr Time kGap{200};
  // From the arrival of an event until it is handled.
  static constexpr Time kBehind{100};

  // What it shows at `steady`, when everything has been handled that came `waited` before and
  // earlier. Times grow; the first one is where it begins.
  [[nodiscard]] Time At(Time steady, Time waited) {
    if (RING_PLANTED(kDelayIsSilence)) waited = Time(0);
    const Time gap = began_ ? steady - seen_ : Time(0);
    began_ = true;
    seen_ = steady;
    if (gap > kGap || waited > kBehind) {
      stood_ += gap;
      untold_ += gap;
    }
    return steady - stood_ - (waited > kBehind ? Time(0) : waited);
  }

  // For how long it stood still since the last call that did not return 0: 0 while that is less
  // than `least`.
  [[nodiscard]] Time TakeStood(Time least) {
    return untold_ < least ? Time(0) : std::exchange(untold_, Time(0));
  }

 private:
  bool began_ = false;
  Time seen_{0}, stood_{0}, untold_{0};
};

}  // namespace ringmaster::coordinator
