// What the coordinator's store holds in a story, and what becomes of what it cannot write: like
// ControlLoop, by the rules of action.h. Thread-compatible.
//
//   store fails     nothing can be written from here on
//   store works     it can again; what was not saved is, with the next tick
//   store answers-not   it can, but what waits for a JobSaved waits: until it works, or a restart
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/logic/action.h"
#include "coordinator/logic/logic.h"

namespace ringmaster::coordinator {

class PlayedStore {
 public:
  void set(const std::string& how) {
    works_ = how != "fails";
    answers_ = how != "answers-not";
  }
  [[nodiscard]] bool works() const { return works_; }
  // What is stored and a JobSaved is asked for, when the store answers.
  [[nodiscard]] std::optional<JobRecord> TakeAsked() {
    return answers_ ? std::exchange(asked_, std::nullopt) : std::nullopt;
  }
  [[nodiscard]] const Restored& content() const { return content_; }

  // An event begins: what is answered to it depends on its own writes.
  void Begin() { failed_ = false; }
  // A process begins: nothing waits to be saved, and the term is raised.
  void Open() {
    unsaved_.clear();
    withheld_.clear();
    answers_ = true;
    asked_.reset();
    ++content_.term;
  }
  void Reset() { content_ = {}; }

  [[nodiscard]] Status Insert(const JobRecord& record) {
    if (works_) content_.jobs.push_back(record);
    return Judge();
  }
  [[nodiscard]] Status Insert(const CheckpointRecord& record) {
    if (works_) Keep(record, content_.checkpoints);
    return Judge();
  }
  // What it asks, and what an older one asked that could not be saved.
  [[nodiscard]] Status Save(SaveJob& save) {
    const JobRecord& record = save.record;
    if (const auto older = unsaved_.find(record.id()); older != unsaved_.end()) {
      save.asks = save.asks || older->second.asks;
    }
    if (!works_) {
      unsaved_[record.id()] = save;
      return Judge();
    }
    unsaved_.erase(record.id());
    if (save.asks) asked_ = record;
    for (JobRecord& job : content_.jobs) {
      if (job.number == record.number) job = record;
    }
    return absl::OkStatus();
  }
  [[nodiscard]] Status Save(const DrainRecord& record) {
    if (!works_) return Judge();
    std::erase_if(content_.drains,
                  [&](const auto& drain) { return drain.worker == record.worker; });
    if (!record.incarnation.empty()) content_.drains.push_back(record);
    return absl::OkStatus();
  }
  [[nodiscard]] Status Raise(uint64_t term) {
    if (works_) content_.term = term;
    return Judge();
  }
  [[nodiscard]] Status Remove(const CheckpointRecord& record) {
    if (!works_) return Judge();
    std::erase_if(content_.checkpoints, [&](const CheckpointRecord& kept) {
      return kept.job_id == record.job_id && kept.ref.step() == record.ref.step();
    });
    return absl::OkStatus();
  }

  [[nodiscard]] Status Remove(const std::vector<RemovedJob>& jobs) {
    if (!works_) return Judge();
    for (const RemovedJob& job : jobs) {
      std::erase_if(content_.jobs, [&](const auto& kept) { return kept.number == job.number; });
      std::erase_if(content_.checkpoints,
                    [&](const auto& kept) { return kept.job_id == job.job_id; });
      content_.removed.push_back(job);
    }
    return absl::OkStatus();
  }

  // What is to be tried again now.
  [[nodiscard]] Actions Again() {
    Actions again;
    if (!works_) return again;
    for (const auto& [id, save] : unsaved_) again.emplace_back(save);
    return again;
  }

  // Whether this view waits until its job is saved; then Release has it.
  [[nodiscard]] bool Withholds(const JobView& view) {
    const bool withholds = unsaved_.contains(view.status.job_id());
    if (withholds) withheld_[view.status.job_id()] = view;
    return withholds;
  }
  [[nodiscard]] std::optional<JobView> Release(const std::string& id) {
    auto view = withheld_.extract(id);
    return view ? std::optional(std::move(view.mapped())) : std::nullopt;
  }

  [[nodiscard]] Refusal IfStored(const Refusal& refusal) const {
    if (!failed_ || !refusal.status.ok()) return refusal;
    return {absl::UnavailableError("the coordinator cannot write its store"), "STORE_UNAVAILABLE"};
  }

 private:
  [[nodiscard]] Status Judge() {
    if (works_) return absl::OkStatus();
    failed_ = true;
    return absl::UnavailableError("no space left on the disk");
  }

  Restored content_;
  bool works_ = true, answers_ = true;
  std::optional<JobRecord> asked_;
  bool failed_ = false;  // a write of the event that is played
  std::map<std::string, SaveJob> unsaved_;
  std::map<std::string, JobView> withheld_;
};

}  // namespace ringmaster::coordinator
