// The coordinator's checkpoints on disk: FOLDER/JOB/step-NNNNNNNN, each complete and verified or
// not there at all. Owned by the daemon; thread-compatible, used on the disk thread. Which of them
// count is the store's word, not the folder's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "coordinator/store/staged_checkpoint.h"

namespace ringmaster::coordinator {

class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string root) : root_(std::move(root)) {}

  // Removes what a crash left behind: everything under the folder that is not among `known` (paths
  // of checkpoints in the store).
  [[nodiscard]] Status Sweep(const std::vector<std::string>& known) const;

  // An empty checkpoint to write to. `job` is the id of a known job.
  [[nodiscard]] StatusOr<std::unique_ptr<StagedCheckpoint>> Stage(const JobId& job,
                                                                  uint64_t step) const;
  // Puts a finished one in its place and returns its path; OK too when the same bytes are there.
  [[nodiscard]] StatusOr<std::string> Commit(const StagedCheckpoint& staged) const;
  // Removes one; no error when it is not there.
  [[nodiscard]] Status Remove(const std::string& path) const;

 private:
  const std::string root_;
};

}  // namespace ringmaster::coordinator
