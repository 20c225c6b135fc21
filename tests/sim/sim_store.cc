#include "tests/sim/sim_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "common/planted_bug.h"
#include "common/sha256.h"

namespace ringmaster::sim {

using coordinator::CheckpointRecord;
using coordinator::DrainRecord;
using coordinator::JobRecord;

std::string ManifestSha256(uint64_t step, StateHash state) {
  std::string hex;
  for (uint64_t part = 0; part < 4; ++part)
    hex += fmt::format("{:016x}", Mix(Mix(state, step), part));
  return hex;
}

std::string DigestHex(StateHash state) { return Hex(DigestOf(state)); }

std::string SimStore::PathOf(const std::string& job, uint64_t step) {
  return fmt::format("{}/step-{:06}", job, step);
}

Status SimStore::Write(const std::function<void(Content&)>& change) {
  if (full_) return Error(absl::StatusCode::kUnavailable, "no space left on device");
  change(now_);
  return absl::OkStatus();
}

std::vector<Status> SimStore::WriteAll(const std::vector<const coordinator::StoreWrite*>& writes) {
  const std::function<void()> die = std::exchange(die_, nullptr);
  if (die && moment_ == Moment::kBeforeWrite) {
    die();
    return {};
  }
  std::vector<Status> statuses;
  if (failing_ != Failing::kNotStored) statuses = Store::WriteAll(writes);
  if (failing_ != Failing::kNot) {
    statuses.assign(writes.size(), Error(absl::StatusCode::kUnavailable, "disk I/O error"));
  }
  if (die) die();
  for (size_t i = 0; i < writes.size(); ++i) {
    ever_failed_ = ever_failed_ || !statuses[i].ok();
    const auto* raised = std::get_if<coordinator::RaiseTerm>(writes[i]);
    if (raised != nullptr && statuses[i].ok()) told_term_ = raised->term;
    if (const auto* saved = std::get_if<coordinator::SaveJob>(writes[i])) {
      OnTried(saved->record, statuses[i].ok());
    }
  }
  return statuses;
}

// What is older than what is stored does not run ahead of it.
void SimStore::OnTried(const JobRecord& job, bool stored) {
  std::set<int>& tried = tried_[job.id()];
  tried.insert(job.status.state());
  if (stored) states_[job.id()].merge(std::exchange(tried, {}));
}

void SimStore::DieAtNextCommit(Moment moment, std::function<void()> die) {
  moment_ = moment;
  die_ = std::move(die);
}

bool SimStore::Open() {
  const uint64_t more = RING_PLANTED(kTermNotDurable) && now_.term > 0 ? 0 : 1;
  if (failing_ != Failing::kNot) return false;
  const bool opened = Write([more](Content& content) { content.term += more; }).ok();
  if (opened) told_term_ = now_.term;
  return opened;
}

StatusOr<std::vector<JobRecord>> SimStore::LoadJobs() {
  std::vector<JobRecord> jobs;
  for (const auto& [id, job] : now_.jobs) jobs.push_back(job);
  std::sort(jobs.begin(), jobs.end(),
            [](const JobRecord& a, const JobRecord& b) { return a.number < b.number; });
  return jobs;
}

StatusOr<std::vector<CheckpointRecord>> SimStore::LoadCheckpoints() {
  std::vector<CheckpointRecord> checkpoints;
  for (const auto& [key, checkpoint] : now_.checkpoints) checkpoints.push_back(checkpoint);
  return checkpoints;
}

StatusOr<std::vector<DrainRecord>> SimStore::LoadDrains() {
  std::vector<DrainRecord> drains;
  for (const auto& [worker, incarnation] : now_.drains) drains.push_back({worker, incarnation});
  return drains;
}

Status SimStore::RaiseTerm(uint64_t term) {
  if (term <= told_term_) return FailedPrecondition("the term is {}, got {}", told_term_, term);
  return Write([&](Content& content) { content.term = term; });
}

Status SimStore::TryWrite() {
  return Write([](Content&) {});
}

Status SimStore::InsertJob(const JobRecord& job) {
  return Write([&](Content& content) {
    // Of those whose insertion failed nobody was told.
    std::erase_if(content.jobs, [&](const auto& known) {
      return known.second.number == job.number ||
             known.second.idempotency_key == job.idempotency_key;
    });
    content.jobs[job.id()] = job;
    states_[job.id()].insert(job.status.state());
  });
}

Status SimStore::SaveJob(const JobRecord& job) {
  return Write([&](Content& content) {
    content.jobs[job.id()] = job;
    states_[job.id()].insert(job.status.state());
  });
}

Status SimStore::InsertCheckpoint(const CheckpointRecord& checkpoint) {
  return Write([&](Content& content) {
    content.checkpoints[{checkpoint.job_id, checkpoint.ref.step()}] = checkpoint;
  });
}

Status SimStore::RemoveCheckpoint(const CheckpointRecord& checkpoint) {
  return Write([&](Content& content) {
    content.checkpoints.erase({checkpoint.job_id, checkpoint.ref.step()});
  });
}

Status SimStore::SaveMetrics(const std::string& job_id, const coordinator::MetricBatch& batch) {
  return Write([&](Content& content) { content.metrics[job_id].Append(batch); });
}

StatusOr<coordinator::Store::MetricPage> SimStore::LoadMetrics(const std::string& job_id,
                                                               v1::MetricSeries series,
                                                               std::optional<uint64_t> after,
                                                               size_t) {
  const coordinator::MetricBatch& all = now_.metrics[job_id];
  MetricPage page;
  for (const auto& [step, point] : series == v1::METRIC_SERIES_EPOCHS ? all.epochs : all.steps) {
    if (!after || step > *after) page.points.push_back(point);
  }
  return page;
}

Status SimStore::SaveDrain(const DrainRecord& drain) {
  return Write([&](Content& content) {
    if (drain.incarnation.empty()) {
      content.drains.erase(drain.worker);
    } else {
      content.drains[drain.worker] = drain.incarnation;
    }
  });
}

bool SimStore::Has(const std::string& job, uint64_t step) const {
  return now_.checkpoints.contains({job, step});
}

}  // namespace ringmaster::sim
