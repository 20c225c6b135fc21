// Removes superseded checkpoints, but none before the two newest others of its job were read back
// and found whole. One job is looked at by one check at a time; what is superseded meanwhile waits
// for the next one. Owned by the control loop, loop thread only; the reading is done on the disk
// thread. Which ones are superseded is the logic's word.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/loop.h"
#include "coordinator/logic/record.h"
#include "coordinator/service/checkpoint_check.h"
#include "coordinator/store/checkpoint_folder.h"

namespace ringmaster::coordinator {

class CheckpointRetirement {
 public:
  struct Hands {
    const CheckpointFolder* folder;
    Loop* disk;
    // Runs a task on the control loop.
    std::function<void(std::function<void()>)> on_loop;
    // Takes one out of the store; false when that failed: it stays.
    std::function<bool(const CheckpointRecord&)> forget;
    // One could not be removed; why.
    std::function<void(const CheckpointRecord&, const std::string& why)> retain;
  };
  explicit CheckpointRetirement(Hands hands) : hands_(std::move(hands)) {}

  // It is in the store.
  void Add(const CheckpointRecord& record);
  // It is superseded.
  void Retire(const CheckpointRecord& record);
  // The superseded ones of a job that are still there, newest first.
  [[nodiscard]] std::vector<CheckpointRecord> Waiting(const std::string& job_id) const;

 private:
  struct Shelf {
    std::map<uint64_t, v1::CheckpointRef> kept;       // by step
    std::map<uint64_t, CheckpointRecord> superseded;  // likewise
    bool checking = false;
  };
  void Check(const std::string& job_id);
  void OnChecked(const std::string& job_id, const std::vector<uint64_t>& steps,
                 const std::string& problem);
  void Remove(const CheckpointRecord& record);

  const Hands hands_;
  std::map<std::string, Shelf> shelves_;  // by job
};

}  // namespace ringmaster::coordinator
