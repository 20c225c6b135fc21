#include "coordinator/logic/checkpoints.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/job/metrics.h"

namespace ringmaster::coordinator {
namespace {

constexpr size_t kReadBack = 2;

}  // namespace

const CheckpointRecord* BestOf(const CheckpointList& checkpoints, const v1::Watch& metric) {
  const CheckpointRecord* best = nullptr;
  for (const CheckpointRecord& each : checkpoints) {
    if (!each.best) continue;
    const bool better =
        best == nullptr || (metric.lower_is_better() ? each.ref.metric() < best->ref.metric()
                                                     : each.ref.metric() > best->ref.metric());
    if (better) best = &each;
  }
  return best;
}

const CheckpointRecord* FindStep(const CheckpointList& checkpoints, uint64_t step) {
  const auto known = std::find_if(checkpoints.begin(), checkpoints.end(),
                                  [&](const auto& each) { return each.ref.step() == step; });
  return known == checkpoints.end() ? nullptr : &*known;
}

v1::CheckpointSource SourceOf(const CheckpointRecord& checkpoint) {
  v1::CheckpointSource source;
  source.set_job_id(checkpoint.job_id);
  source.set_step(checkpoint.ref.step());
  source.set_manifest_sha256(checkpoint.ref.sha256());
  return source;
}

void Keep(const CheckpointRecord& checkpoint, CheckpointList& checkpoints) {
  const auto place =
      std::lower_bound(checkpoints.begin(), checkpoints.end(), checkpoint,
                       [](const auto& a, const auto& b) { return a.ref.step() < b.ref.step(); });
  if (place != checkpoints.end() && place->ref.step() == checkpoint.ref.step()) {
    *place = checkpoint;
  } else {
    checkpoints.insert(place, checkpoint);
  }
}

CheckpointList TakeSuperseded(const v1::ResolvedJob& job, const std::set<uint64_t>& pinned,
                              CheckpointList& checkpoints) {
  CheckpointList superseded;
  const size_t keep = std::max<size_t>(2, job.checkpoint().keep());
  if (checkpoints.size() <= keep) return superseded;
  const CheckpointRecord* best = BestOf(checkpoints, job::BestWatch(job.result()));
  const uint64_t best_step = best == nullptr ? 0 : best->ref.step();
  const auto newest = checkpoints.end() - static_cast<std::ptrdiff_t>(keep);
  const auto kept = std::stable_partition(
      checkpoints.begin(), newest, [best_step, &pinned](const CheckpointRecord& c) {
        return c.ref.step() != best_step && !pinned.contains(c.ref.step());
      });
  superseded.assign(checkpoints.begin(), kept);
  checkpoints.erase(checkpoints.begin(), kept);
  return superseded;
}

void Retirement::Add(CheckpointRecord superseded) {
  const uint64_t step = superseded.ref.step();
  waiting_[step] = std::move(superseded);
}

CheckpointList Retirement::Waiting() const {
  CheckpointList waiting;
  for (const auto& [step, record] : waiting_) waiting.push_back(record);
  return waiting;
}

CheckpointList Retirement::TakeBack() {
  CheckpointList waiting = Waiting();
  waiting_.clear();
  return waiting;
}

CheckpointList Retirement::Begin(const CheckpointList& kept) {
  if (waiting_.empty() || !reading_.empty()) return {};
  for (const auto& [step, record] : waiting_) reading_.insert(step);
  const size_t count = std::min(kReadBack, kept.size());
  return {kept.rbegin(), kept.rbegin() + static_cast<std::ptrdiff_t>(count)};
}

CheckpointList Retirement::End() {
  CheckpointList ended;
  for (const uint64_t step : std::exchange(reading_, {})) {
    if (auto record = waiting_.extract(step)) ended.push_back(std::move(record.mapped()));
  }
  return ended;
}

namespace {

constexpr size_t kMaxSteps = 16;    // but for those that are held
constexpr size_t kMaxReports = 64;  // of a step: two, and two more for each change of the ring

}  // namespace

bool SnapshotReports::Held(uint64_t step) const {
  return std::any_of(held_.begin(), held_.end(),
                     [step](const auto& member) { return member.second.contains(step); });
}

void SnapshotReports::Add(const Member& from, const v1::Snapshot& snapshot,
                          const google::protobuf::RepeatedField<uint64_t>& held) {
  held_[from.name()] = {held.begin(), held.end()};
  std::vector<SnapshotReport>& reports = by_step_[snapshot.step()];
  const std::string& manifest_sha256 = snapshot.manifest_sha256();
  const auto known = std::find_if(reports.begin(), reports.end(), [&](const SnapshotReport& r) {
    return r.worker == from.name() && r.incarnation == from.incarnation();
  });
  if (known != reports.end()) {
    if (!manifest_sha256.empty()) known->manifest_sha256 = manifest_sha256;
  } else {
    // Of processes that are gone, the oldest first.
    if (reports.size() >= kMaxReports) reports.erase(reports.begin());
    reports.push_back({from.name(), from.incarnation(), from.called(), manifest_sha256});
  }
  size_t too_many = by_step_.size() > kMaxSteps ? by_step_.size() - kMaxSteps : 0;
  for (auto step = by_step_.begin(); too_many > 0 && step != by_step_.end(); --too_many) {
    step = Held(step->first) ? std::next(step) : by_step_.erase(step);
  }
}

bool SnapshotReports::Passed(const Member& member, uint64_t step) const {
  const auto held = held_.find(member.name());
  if (held == held_.end() || held->second.contains(step) || Of(member, step) != nullptr) {
    return false;
  }
  return std::any_of(by_step_.upper_bound(step), by_step_.end(),
                     [&](const auto& entry) { return Of(member, entry.first) != nullptr; });
}

void SnapshotReports::KeepHolders(const std::set<std::string>& members) {
  std::erase_if(held_, [&](const auto& holder) { return !members.contains(holder.first); });
}

void SnapshotReports::Drop(const std::string& member) {
  held_.erase(member);
  for (auto& [step, reports] : by_step_) {
    std::erase_if(reports, [&](const SnapshotReport& report) {
      return report.worker == member && report.manifest_sha256.empty();
    });
  }
}

void SnapshotReports::ForgetAfter(uint64_t step) {
  by_step_.erase(by_step_.upper_bound(step), by_step_.end());
}

const std::vector<SnapshotReport>& SnapshotReports::At(uint64_t step) const {
  static const std::vector<SnapshotReport> kNone;
  const auto reports = by_step_.find(step);
  return reports == by_step_.end() ? kNone : reports->second;
}

const SnapshotReport* SnapshotReports::Of(const Member& member, uint64_t step) const {
  for (const SnapshotReport& report : At(step)) {
    if (report.worker == member.name() && report.incarnation == member.incarnation()) {
      return &report;
    }
  }
  return nullptr;
}

}  // namespace ringmaster::coordinator
