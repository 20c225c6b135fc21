#include "coordinator/store/store.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/job/resolve.h"
#include "common/sha256.h"
#include "coordinator/logic/logic.h"
#include "coordinator/store/checkpoint_folder.h"

namespace ringmaster::coordinator {
namespace {

struct Writer {
  Status operator()(const InsertJob& write) const { return store.InsertJob(write.record); }
  Status operator()(const InsertCheckpoint& write) const {
    return store.InsertCheckpoint(write.record);
  }
  Status operator()(const RaiseTerm& write) const { return store.RaiseTerm(write.term); }
  Status operator()(const SaveJob& write) const { return store.SaveJob(write.record); }
  Status operator()(const SaveMetrics& write) const {
    return store.SaveMetrics(write.job_id, write.batch);
  }
  Status operator()(const SaveDrain& write) const { return store.SaveDrain(write.record); }
  Status operator()(const WriteNothing&) const { return store.TryWrite(); }
  Store& store;
};

// Why it is none of its job's; empty when it is.
std::string CheckStray(const CheckpointFolder::Stray& stray, const std::vector<JobRecord>& jobs) {
  const auto job = std::find_if(jobs.begin(), jobs.end(), [&](const JobRecord& record) {
    return record.id() == stray.job_id;
  });
  if (job == jobs.end() || !job->resolved) {
    return fmt::format("job {} had not started yet when the store was copied", stray.job_id);
  }
  const std::string expected = Hex(job::ResultDigest(job->resolved->result()));
  if (stray.result_digest == expected) return "";
  return fmt::format("it is of another job that had the id {}: result_digest {}, expected {}",
                     stray.job_id, stray.result_digest, expected);
}

// Of checkpoints in the folder that are not in the store.
Status AdoptStrays(const CheckpointFolder& folder, Store& store, Restored& restored) {
  CheckpointFolder::Known known;
  for (const JobRecord& job : restored.jobs) known.jobs.insert(job.id());
  for (const CheckpointRecord& checkpoint : restored.checkpoints) {
    known.paths.insert(checkpoint.ref.path());
  }
  RING_ASSIGN_OR_RETURN(const CheckpointFolder::Swept swept, folder.Sweep(known));
  for (const std::string& warning : swept.warnings) spdlog::warn("checkpoints: {}", warning);
  restored.taken_ids = swept.unknown_jobs;
  for (const CheckpointFolder::Stray& stray : swept.strays) {
    if (const std::string why = CheckStray(stray, restored.jobs); !why.empty()) {
      spdlog::warn("checkpoints: {} is not in the store, and it is left as it is: {}",
                   stray.ref.path(), why);
      continue;
    }
    const CheckpointRecord record{stray.job_id, stray.ref, false};
    RING_RETURN_IF_ERROR(store.InsertCheckpoint(record));
    restored.checkpoints.push_back(record);
    spdlog::warn("checkpoints: {} was whole and not in the store: it is now", stray.ref.path());
  }
  return absl::OkStatus();
}

}  // namespace

Status Store::Write(const StoreWrite& write) { return std::visit(Writer{*this}, write); }

std::vector<Status> Store::WriteAll(const std::vector<const StoreWrite*>& writes) {
  std::vector<Status> statuses;
  statuses.reserve(writes.size());
  for (const StoreWrite* const write : writes) statuses.push_back(Write(*write));
  return statuses;
}

StatusOr<Restored> LoadAll(Store& store, const CheckpointFolder& folder) {
  Restored restored;
  restored.term = store.term();
  RING_ASSIGN_OR_RETURN(restored.jobs, store.LoadJobs());
  RING_ASSIGN_OR_RETURN(restored.checkpoints, store.LoadCheckpoints());
  RING_ASSIGN_OR_RETURN(restored.drains, store.LoadDrains());
  RING_RETURN_IF_ERROR(AdoptStrays(folder, store, restored));
  return restored;
}

}  // namespace ringmaster::coordinator
