// Named places in the daemons at which a test makes a process die, stand still, be slow or hold a
// wrong bit, at a step of its choice. Nothing is armed unless RINGMASTER_FAILPOINTS says so;
// CONTRIBUTING.md has the syntax. Thread-safe; one relaxed load where nothing is armed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "common/status.h"

namespace ringmaster {

inline constexpr char kFailpointVariable[] = "RINGMASTER_FAILPOINTS";

namespace failpoint_internal {
extern std::atomic<bool> armed;
void Hit(const char* name, uint64_t step, const std::function<bool()>& over);
std::string Flip(const char* name, uint64_t step);
}  // namespace failpoint_internal

// Arms the points of `text`, and these alone; nullptr or "" arms none. Each is logged as a warning.
// INVALID_ARGUMENT names the entry that cannot be read, and then nothing changes.
Status ArmFailpoints(const char* text);

// This thread is at the point `name` of step `step`: does what is armed for it. `over`: a `hold`
// ends as soon as it says so, too; without one it is as a `delay`.
inline void HitFailpoint(const char* name, uint64_t step,
                         const std::function<bool()>& over = nullptr) {
  if (failpoint_internal::armed.load(std::memory_order_relaxed))
    failpoint_internal::Hit(name, step, over);
}

// What a bit is to be flipped of at this point, `flip:WHAT`; empty: of nothing. Points that have
// something to flip ask this, and carry it out.
inline std::string FlipAt(const char* name, uint64_t step) {
  if (!failpoint_internal::armed.load(std::memory_order_relaxed)) return {};
  return failpoint_internal::Flip(name, step);
}

}  // namespace ringmaster
