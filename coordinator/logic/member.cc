#include "coordinator/logic/member.h"

#include <algorithm>
#include <array>

namespace ringmaster::coordinator {
namespace {

// The step thread's phases in which it waits for nobody else. In `checkpoint` it may wait for room
// on the coordinator's disk.
constexpr std::array kOwnWork = {"input", "compute", "update"};

bool IsOwnWork(const std::string& phase) {
  return std::find(kOwnWork.begin(), kOwnWork.end(), phase) != kOwnWork.end();
}

}  // namespace

void ProgressWatch::Observe(const std::string& phase, uint64_t progress, Now now) {
  if (!since_ || phase != phase_) {
    phase_ = phase;
    progress_ = progress;
    since_ = now.steady;
    return;
  }
  if (progress == progress_) return;
  if (IsOwnWork(phase)) {
    Gaps& gaps = gaps_[phase];
    gaps.longest = std::max(gaps.longest, now.steady - *since_);
    ++gaps.count;
  }
  progress_ = progress;
  since_ = now.steady;
}

void ProgressWatch::Excuse(std::chrono::milliseconds late) {
  if (since_) *since_ += late;
}

std::optional<std::chrono::milliseconds> ProgressWatch::Frozen(std::chrono::milliseconds otherwise,
                                                               Now now) const {
  if (!since_ || !IsOwnWork(phase_)) return std::nullopt;
  const auto known = gaps_.find(phase_);
  const bool enough = known != gaps_.end() && known->second.count >= kEnough;
  const auto limit = enough ? std::max(kLeast, kFactor * known->second.longest) : otherwise;
  const auto still = now.steady - *since_;
  if (still < limit) return std::nullopt;
  return still;
}

}  // namespace ringmaster::coordinator
