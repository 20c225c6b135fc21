#include "coordinator/logic/run/member.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "common/amount.h"
#include "common/text.h"

namespace ringmaster::coordinator {
namespace {

// The step thread's phases in which it waits for nobody else. In `checkpoint` it may wait for room
// on the coordinator's disk.
constexpr std::array kOwnWork = {"input", "compute", "update"};

bool IsOwnWork(const std::string& phase) {
  return std::find(kOwnWork.begin(), kOwnWork.end(), phase) != kOwnWork.end();
}

constexpr double kMostRate = 1e15;  // bytes a second

}  // namespace

v1::DataFetch Shown(const v1::DataFetch& said) {
  v1::DataFetch shown = said;
  shown.set_source(OneLine(said.source(), kMaxNameText));
  const double rate = said.bytes_per_second();
  shown.set_bytes_per_second(std::isfinite(rate) ? std::clamp(rate, 0.0, kMostRate) : 0);
  return shown;
}

std::string DescribeFetch(const v1::DataFetch& fetch) {
  if (fetch.total_bytes() == 0) return "fetching data: asking " + fetch.source();
  return fmt::format("fetching data: {} of {}, {}/s from {}", FormatBytes(fetch.bytes()),
                     FormatBytes(fetch.total_bytes()),
                     FormatBytes(static_cast<uint64_t>(fetch.bytes_per_second())), fetch.source());
}

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
  return Bar(worker, incarnation, now, kFirst, kMost);
}

std::chrono::milliseconds Readmission::BarSlow(const std::string& worker,
                                               const std::string& incarnation, Now now) {
  const auto lasts = Bar(worker, incarnation, now, kMost, kMostOfSlow);
  records_[worker].slow = true;
  return lasts;
}

std::chrono::milliseconds Readmission::Bar(const std::string& worker,
                                           const std::string& incarnation, Now now,
                                           std::chrono::milliseconds first,
                                           std::chrono::milliseconds most) {
  Record& record = records_[worker];
  if (record.incarnation != incarnation) record = {incarnation, {}, {}, false, false};
  record.slow = false;
  record.lasts = std::clamp(2 * record.lasts, first, most);
  record.until = now.steady + record.lasts;
  record.told = false;
  return record.lasts;
}

void Readmission::Lift(const std::string& worker, Now now) {
  const auto record = records_.find(worker);
  if (record != records_.end()) record->second.until = std::min(record->second.until, now.steady);
}

void Readmission::LiftSlow(Now now) {
  for (auto& [worker, record] : records_) {
    if (record.slow) record.until = std::min(record.until, now.steady);
  }
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
