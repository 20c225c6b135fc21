#include "coordinator/logic/snapshot_reports.h"

#include <algorithm>

namespace ringmaster::coordinator {
namespace {

constexpr size_t kMaxSteps = 16;    // workers keep two copies
constexpr size_t kMaxReports = 64;  // of a step: two, and two more for each change of the ring

}  // namespace

void SnapshotReports::Add(const Member& from, uint64_t step, const std::string& manifest_sha256) {
  std::vector<SnapshotReport>& reports = by_step_[step];
  const auto known = std::find_if(reports.begin(), reports.end(), [&](const SnapshotReport& r) {
    return r.worker == from.name() && r.incarnation == from.incarnation();
  });
  if (known != reports.end()) {
    if (!manifest_sha256.empty()) known->manifest_sha256 = manifest_sha256;
  } else if (reports.size() < kMaxReports) {
    reports.push_back({from.name(), from.incarnation(), from.called(), manifest_sha256});
  }
  if (by_step_.size() > kMaxSteps) by_step_.erase(by_step_.begin());
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
