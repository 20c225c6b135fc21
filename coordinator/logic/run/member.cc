#include "coordinator/logic/run/member.h"

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

std::chrono::milliseconds Readmission::Bar(const std::string& worker,
                                           const std::string& incarnation, Now now) {
  Record& record = records_[worker];
  if (record.incarnation != incarnation) record = {incarnation, {}, {}, false};
  record.lasts = record.lasts.count() == 0 ? kFirst : std::min(2 * record.lasts, kMost);
  record.until = now.steady + record.lasts;
  record.told = false;
  return record.lasts;
}

void Readmission::Lift(const std::string& worker, Now now) {
  const auto record = records_.find(worker);
  if (record != records_.end()) record->second.until = std::min(record->second.until, now.steady);
}

bool Readmission::Barred(const std::string& worker, const std::string& incarnation, Now now) const {
  const auto record = records_.find(worker);
  return record != records_.end() && record->second.incarnation == incarnation &&
         now.steady < record->second.until;
}

bool Readmission::TakeEnded(Now now) {
  bool ended = false;
  for (auto& [worker, record] : records_) {
    if (record.told || now.steady < record.until) continue;
    ended = record.told = true;
  }
  return ended;
}

void Readmission::Excuse(std::chrono::milliseconds late) {
  for (auto& [worker, record] : records_) record.until += late;
}

}  // namespace ringmaster::coordinator
