#include "coordinator/service/checkpoint_retirement.h"

#include <spdlog/spdlog.h>

#include <memory>
#include <utility>

namespace ringmaster::coordinator {
namespace {

constexpr size_t kReadBack = 2;

}  // namespace

void CheckpointRetirement::Add(const CheckpointRecord& record) {
  shelves_[record.job_id].kept[record.ref.step()] = record.ref;
}

void CheckpointRetirement::Retire(const CheckpointRecord& record) {
  Shelf& shelf = shelves_[record.job_id];
  shelf.kept.erase(record.ref.step());
  shelf.superseded[record.ref.step()] = record;
  if (!shelf.checking) Check(record.job_id);
}

std::vector<CheckpointRecord> CheckpointRetirement::Waiting(const std::string& job_id) const {
  std::vector<CheckpointRecord> waiting;
  const auto shelf = shelves_.find(job_id);
  if (shelf == shelves_.end()) return waiting;
  const auto& superseded = shelf->second.superseded;
  for (auto entry = superseded.rbegin(); entry != superseded.rend(); ++entry) {
    waiting.push_back(entry->second);
  }
  return waiting;
}

void CheckpointRetirement::Check(const std::string& job_id) {
  Shelf& shelf = shelves_[job_id];
  shelf.checking = true;
  std::vector<uint64_t> steps;
  for (const auto& [step, record] : shelf.superseded) steps.push_back(step);
  std::vector<v1::CheckpointRef> refs;
  for (auto newest = shelf.kept.rbegin(); newest != shelf.kept.rend(); ++newest) {
    if (refs.size() < kReadBack) refs.push_back(newest->second);
  }
  const auto problem = std::make_shared<std::string>();
  if (refs.size() < kReadBack) *problem = "there are no two newer ones";
  CheckpointCheck::Hearer hearer;
  hearer.tell = [refs, problem](size_t index, const CheckpointCheck::Verdict& verdict) {
    if (verdict.status.ok()) return CheckpointCheck::Next::kGoOn;
    *problem = fmt::format("the one of step {} is not whole: {}", refs[index].step(),
                           Message(verdict.status));
    return CheckpointCheck::Next::kEnough;
  };
  hearer.end = [this, job_id, steps, problem](const Status& status) {
    if (!status.ok()) *problem = "the newer ones could not be read: " + Message(status);
    hands_.on_loop([=, this] { OnChecked(job_id, steps, *problem); });
  };
  CheckpointCheck::Begin(*hands_.disk, refs, std::move(hearer));
}

void CheckpointRetirement::OnChecked(const std::string& job_id, const std::vector<uint64_t>& steps,
                                     const std::string& problem) {
  Shelf& shelf = shelves_[job_id];
  for (const uint64_t step : steps) {
    const CheckpointRecord record = std::move(shelf.superseded.extract(step).mapped());
    if (problem.empty() && hands_.forget(record)) {
      Remove(record);
      continue;
    }
    shelf.kept[step] = record.ref;
    hands_.retain(record, problem.empty() ? "the store cannot be written" : problem);
  }
  shelf.checking = false;
  if (!shelf.superseded.empty()) Check(job_id);
}

void CheckpointRetirement::Remove(const CheckpointRecord& record) {
  const std::string& path = record.ref.path();
  const bool posted = hands_.disk->Post([folder = hands_.folder, path] {
    const Status status = folder->Remove(path);
    if (!status.ok()) spdlog::warn("checkpoint not removed: {}", Message(status));
  });
  if (!posted) spdlog::warn("checkpoint not removed: path={} the disk queue is full", path);
}

}  // namespace ringmaster::coordinator
