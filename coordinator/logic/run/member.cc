#include "coordinator/logic/run/member.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "common/amount.h"
#include "common/planted_bug.h"
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

Member& Membership::Add(Member member) {
  numbers_[member.name()] = members_.size();
  return members_.emplace_back(std::move(member));
}

void Membership::Remove(const std::string& name) {
  const auto found = numbers_.find(name);
  if (found == numbers_.end()) return;
  const size_t gone = found->second;
  numbers_.erase(found);
  members_.erase(members_.begin() + static_cast<std::ptrdiff_t>(gone));
  for (size_t i = gone; i < members_.size(); ++i) numbers_[members_[i].name()] = i;
}

const Member* Membership::Find(const std::string& name) const {
  const auto number = numbers_.find(name);
  return number == numbers_.end() ? nullptr : &members_[number->second];
}

Member* Membership::Find(const std::string& name) {
  return const_cast<Member*>(std::as_const(*this).Find(name));
}

std::vector<Place> Membership::SetRing(std::vector<Place> ring) {
  std::vector<Place> before = std::exchange(ring_, std::move(ring));
  ranks_.clear();
  for (size_t rank = 0; rank < ring_.size(); ++rank) ranks_[ring_[rank].name] = rank;
  return before;
}

void Membership::Recognize(const std::string& name, const std::string& incarnation) {
  const auto rank = ranks_.find(name);
  if (rank != ranks_.end()) ring_[rank->second].incarnation = incarnation;
}

const Member* Membership::At(const Place& place) const {
  RING_COUNT_WORK();
  const Member* member = Find(place.name);
  return member != nullptr && member->incarnation() == place.incarnation ? member : nullptr;
}

Member* Membership::At(const Place& place) {
  return const_cast<Member*>(std::as_const(*this).At(place));
}

std::optional<size_t> Membership::RankOf(const std::string& name) const {
  const auto rank = ranks_.find(name);
  if (rank == ranks_.end() || At(ring_[rank->second]) == nullptr) return std::nullopt;
  return rank->second;
}

uint64_t Membership::HighestApplied(const Names& names) const {
  uint64_t highest = 0;
  for (const std::string& name : names) highest = std::max(highest, Find(name)->holding.applied);
  return highest;
}

bool Membership::Evaluated(const Names& names, uint64_t step) const {
  return std::ranges::all_of(names, [&](const std::string& name) {
    const Holding& holding = Find(name)->holding;
    return holding.applied != step || holding.evaluated;
  });
}

bool Membership::HoldsAlone(const std::string& name, const Names& names) const {
  const uint64_t highest = HighestApplied(names);
  return std::ranges::all_of(names, [&](const std::string& each) {
    return (Find(each)->holding.applied == highest) == (each == name);
  });
}

}  // namespace ringmaster::coordinator
