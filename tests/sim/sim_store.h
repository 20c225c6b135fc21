// What is on the coordinator's disk: its store, where a call that returned OK is durable, and its
// checkpoint folder. It outlives the processes that use it. Faults: commits fail for a while (a
// full disk, or one that stored them), the process dies just before or just after one, an older
// copy is put back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "coordinator/logic/record.h"
#include "coordinator/store/store.h"
#include "tests/sim/toy_state.h"

namespace ringmaster::sim {

// Of manifest.json of S(step).
[[nodiscard]] std::string ManifestSha256(uint64_t step, StateHash state);
// Hex of digest(k), as it stands in a manifest.
[[nodiscard]] std::string DigestHex(StateHash state);

class SimStore : public coordinator::Store {
 public:
  // As a process that starts opens it: the term is raised, durably. False: it cannot be written.
  [[nodiscard]] bool Open();

  [[nodiscard]] uint64_t term() const override { return told_term_; }
  [[nodiscard]] StatusOr<std::vector<coordinator::JobRecord>> LoadJobs() override;
  // Nobody asks for a removal.
  [[nodiscard]] StatusOr<std::vector<coordinator::RemovedJob>> LoadRemoved() override {
    return std::vector<coordinator::RemovedJob>();
  }
  [[nodiscard]] Status RemoveJobs(const std::vector<coordinator::RemovedJob>&) override {
    return Internal("no job is removed here");
  }
  [[nodiscard]] StatusOr<std::vector<coordinator::CheckpointRecord>> LoadCheckpoints() override;
  [[nodiscard]] StatusOr<std::vector<coordinator::DrainRecord>> LoadDrains() override;
  [[nodiscard]] Status RaiseTerm(uint64_t term) override;
  [[nodiscard]] Status TryWrite() override;
  [[nodiscard]] Status InsertJob(const coordinator::JobRecord& job) override;
  [[nodiscard]] Status SaveJob(const coordinator::JobRecord& job) override;
  [[nodiscard]] Status InsertCheckpoint(const coordinator::CheckpointRecord& checkpoint) override;
  [[nodiscard]] Status RemoveCheckpoint(const coordinator::CheckpointRecord& checkpoint) override;
  // As a batch that is appended to all before it.
  [[nodiscard]] Status SaveMetrics(const std::string& job_id,
                                   const coordinator::MetricBatch& batch) override;
  [[nodiscard]] StatusOr<MetricPage> LoadMetrics(const std::string& job_id, v1::MetricSeries series,
                                                 std::optional<uint64_t> after,
                                                 size_t max_bytes) override;
  [[nodiscard]] Status SaveDrain(const coordinator::DrainRecord& drain) override;

  // One commit.
  [[nodiscard]] std::vector<Status> WriteAll(
      const std::vector<const coordinator::StoreWrite*>& writes) override;

  [[nodiscard]] const std::map<std::string, coordinator::JobRecord>& jobs() const {
    return now_.jobs;
  }
  [[nodiscard]] bool Has(const std::string& job, uint64_t step) const;

  void set_full(bool full) { full_ = full; }
  // Commits fail although the disk has room; what they wrote may be there all the same.
  enum class Failing { kNot, kNotStored, kStored };
  void set_failing(Failing failing) { failing_ = failing; }
  // Of any commit, since the beginning.
  [[nodiscard]] bool ever_failed() const { return ever_failed_; }
  // States that were stored of a job, ever, or were to be before one was.
  [[nodiscard]] const std::set<int>& StatesOf(const std::string& job) { return states_[job]; }
  [[nodiscard]] bool full() const { return full_; }
  // At the next commit: runs `die`, before it happens, or after it.
  enum class Moment { kBeforeWrite, kAfterWrite };
  void DieAtNextCommit(Moment moment, std::function<void()> die);
  void Snapshot() { older_ = now_; }
  [[nodiscard]] bool has_snapshot() const { return older_.term != 0; }
  void RestoreSnapshot() { now_ = older_; }
  // Of its jobs, whether each was given a ring.
  [[nodiscard]] bool SnapshotIsBegun() const {
    return std::ranges::all_of(
        older_.jobs, [](const auto& entry) { return entry.second.status.generation().term() > 0; });
  }

  // The checkpoint folder, by path.
  struct Folder {
    uint64_t step = 0;
    StateHash state = 0;
    std::string result_digest;
    ClassMaps class_maps;
    bool damaged = false;
  };
  std::map<std::string, Folder> folders;
  [[nodiscard]] static std::string PathOf(const std::string& job, uint64_t step);

 private:
  struct Content {
    uint64_t term = 0;
    std::map<std::string, coordinator::JobRecord> jobs;
    std::map<std::pair<std::string, uint64_t>, coordinator::CheckpointRecord> checkpoints;
    std::map<std::string, std::string> drains;  // incarnation by worker
    std::map<std::string, coordinator::MetricBatch> metrics;
  };
  [[nodiscard]] Status Write(const std::function<void(Content&)>& change);

  Content now_, older_;
  bool full_ = false;
  Failing failing_ = Failing::kNot;
  bool ever_failed_ = false;
  uint64_t told_term_ = 0;  // that the process knows
  void OnTried(const coordinator::JobRecord& job, bool stored);
  std::map<std::string, std::set<int>> states_, tried_;
  Moment moment_ = Moment::kBeforeWrite;
  std::function<void()> die_;
};

}  // namespace ringmaster::sim
