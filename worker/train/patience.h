// Waiting for what this process itself is bound to do. Thread-safe (a free function). Whatever may
// never come - a neighbour, a file, a coordinator - has deadlines of its own where it is waited
// for; here a deadline only makes the wait look again.
#pragma once

#include <chrono>

#include "common/mutex.h"

namespace ringmaster::worker {

// Returns, with `mutex` held, once `done()` holds.
template <typename Done>
void WaitFor(Condition& condition, Mutex& mutex, Done done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  constexpr std::chrono::minutes kSlice{1};
  bool is_done = false;
  while (!is_done) {
    is_done = condition.WaitUntil(mutex, std::chrono::steady_clock::now() + kSlice, done);
  }
}

}  // namespace ringmaster::worker
