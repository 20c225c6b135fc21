// Whether a test runs under a sanitizer: where it costs ten times as much, fewer rounds say enough,
// and scripts/test nightly runs all of them as users would.
#pragma once

namespace ringmaster::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace ringmaster::testing
