// The dynamic loss scale S of mixed_float16 (Micikevicius et al., "Mixed Precision Training",
// 2018), part of the state: backward is seeded with S/n and gradients are multiplied by 1/S, both
// exact, as S is a power of two. Values and free functions. With other policies S is 1 and never
// changes.
#pragma once

#include <cstdint>

namespace ringmaster::worker {

// Also the most that a job may start with: S/n stays far from float32's limits for every batch.
inline constexpr uint32_t kLargestLossScale = uint32_t{1} << 24;

struct LossScale {
  uint32_t value = 1;       // S: a power of two, 1 to kLargestLossScale
  uint32_t good_steps = 0;  // applied in a row since S was set
  bool operator==(const LossScale&) const = default;

  // S/n, rounded once; 1/S, exact.
  [[nodiscard]] float seed(uint64_t samples) const {
    return static_cast<float>(value) / static_cast<float>(samples);
  }
  [[nodiscard]] float inverse() const { return 1.0F / static_cast<float>(value); }
};

// After an applied step: the growth_steps-th good one in a row doubles S (not past its largest) and
// starts to count anew.
[[nodiscard]] constexpr LossScale AfterGoodStep(LossScale scale, uint32_t growth_steps) {
  if (++scale.good_steps < growth_steps) return scale;
  return {scale.value < kLargestLossScale ? scale.value * 2 : scale.value, 0};
}

// After a skipped step. S is at least 2: under 1 there is no scale.
[[nodiscard]] constexpr LossScale AfterSkippedStep(LossScale scale) { return {scale.value / 2, 0}; }

}  // namespace ringmaster::worker
