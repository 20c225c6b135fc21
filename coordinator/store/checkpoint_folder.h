// The coordinator's checkpoints on disk: FOLDER/JOB/step-NNNNNNNN, each complete and verified or
// not there at all; what arrives or goes is in FOLDER/.staging. Owned by the daemon;
// thread-compatible, used on the disk thread, but for Sweep. Which of them count is the store's
// word, not the folder's.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "coordinator/logic/record.h"
#include "coordinator/store/staged_checkpoint.h"

namespace ringmaster::coordinator {

class Store;
struct Restored;  // logic.h

class CheckpointFolder {
 public:
  static constexpr uint64_t kNoQuota = std::numeric_limits<uint64_t>::max();

  // `quota`: bytes of all files, those that are arriving as large as they may be.
  explicit CheckpointFolder(std::string root, uint64_t quota = kNoQuota)
      : root_(std::move(root)), quota_(quota) {}

  // What the store knows.
  struct Known {
    std::set<std::string> jobs;
    std::set<std::string> paths;         // of checkpoints
    std::set<std::string> removed = {};  // jobs
  };
  struct Swept {
    std::vector<StrayCheckpoint> strays;
    std::vector<std::string> unknown_jobs;  // that have a folder
    std::vector<std::string> warnings;      // a sentence for whatever was left alone
  };
  // Removes what a crash left in .staging and of removed jobs, and nothing else. Reads every stray
  // from beginning to end.
  [[nodiscard]] StatusOr<Swept> Sweep(const Known& known) const;

  // An empty checkpoint to write to, at most `max_bytes`. `job` is the id of a known job.
  // RESOURCE_EXHAUSTED: the quota.
  [[nodiscard]] StatusOr<std::unique_ptr<StagedCheckpoint>> Stage(const JobId& job, uint64_t step,
                                                                  uint64_t max_bytes) const;
  // Puts a finished one in its place and returns its path; OK too when the same bytes are there.
  // One that is not whole is replaced.
  [[nodiscard]] StatusOr<std::string> Commit(const StagedCheckpoint& staged) const;
  // Removes one; no error when it is not there. A crash leaves all of it or none.
  [[nodiscard]] Status Remove(const std::string& path) const;
  // Likewise all of a job.
  [[nodiscard]] Status RemoveJob(const std::string& job) const { return Remove(root_ + "/" + job); }

 private:
  [[nodiscard]] std::string NewStagingPath(const std::string& name) const;
  void Inspect(const std::string& job, const std::string& path, Swept& swept) const;
  [[nodiscard]] StatusOr<bool> HoldsSame(const StagedCheckpoint& staged) const;
  [[nodiscard]] Status CheckQuota(uint64_t more) const;

  const std::string root_;
  const uint64_t quota_;
  // Of those that are arriving; each takes its part back when it goes.
  const std::shared_ptr<std::atomic<uint64_t>> arriving_ =
      std::make_shared<std::atomic<uint64_t>>(0);
};

// All that `store` holds, before the control loop starts. A store that was restored from an older
// copy knows less than the folder: checkpoints there that are whole are strays, of which the logic
// decides, and ids of jobs that it lacks are taken. What a crash left of removed jobs goes.
[[nodiscard]] StatusOr<Restored> LoadAll(Store& store, const CheckpointFolder& folder);

}  // namespace ringmaster::coordinator
