// The checkpoints of a job: which stay, and what the holders of snapshots said they must be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <google/protobuf/repeated_field.h>

#include "coordinator/logic/record.h"
#include "coordinator/logic/run/member.h"
#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::coordinator {

// Which checkpoints of a job stay. Pure; thread-safe (free functions).

// The checkpoints of one job, by step.
using CheckpointList = std::vector<CheckpointRecord>;

// The best of a job by checkpoint.best, of several the oldest. Null when none was marked.
[[nodiscard]] const CheckpointRecord* BestOf(const CheckpointList& checkpoints,
                                             const v1::Watch& metric);

// Null when there is none of that step.
[[nodiscard]] const CheckpointRecord* FindStep(const CheckpointList& checkpoints, uint64_t step);
// Where workers fetch it.
[[nodiscard]] v1::CheckpointSource SourceOf(const CheckpointRecord& checkpoint);

// Puts it in its place; one of the same step is replaced.
void Keep(const CheckpointRecord& checkpoint, CheckpointList& checkpoints);

// Takes out what need not be kept, oldest first: all but the newest, the best, and those of
// `pinned` steps. At least two newest ones stay: when one does not verify there is another to go
// back to.
[[nodiscard]] CheckpointList TakeSuperseded(const v1::ResolvedJob& job,
                                            const std::set<uint64_t>& pinned,
                                            CheckpointList& checkpoints);

// Superseded checkpoints of a job, which are still there: none goes before the two newest others
// were read back and found whole. What is superseded while a reading is under way waits for the
// next one. A value, owned by Logic with the job; it reads nothing.
class Retirement {
 public:
  void Add(CheckpointRecord superseded);
  // Another one of its step came.
  void Forget(uint64_t step) { waiting_.erase(step); }
  // All that wait: they count again.
  [[nodiscard]] CheckpointList TakeBack();
  // By step.
  [[nodiscard]] CheckpointList Waiting() const;
  // What is to be read back so that those that wait may go, of `kept`, newest first; nothing while
  // that is done, or nobody waits.
  [[nodiscard]] CheckpointList Begin(const CheckpointList& kept);
  // The reading has ended: those that it was for, oldest first. They wait no more.
  [[nodiscard]] CheckpointList End();

 private:
  std::map<uint64_t, CheckpointRecord> waiting_;  // by step
  std::set<uint64_t> reading_;                    // steps for which others are read back
};

// What the holders of a job's snapshots reported of them, each over its own session: the SHA-256 of
// the manifest that a checkpoint of that step must have. Of every step of which a member says that
// it holds a copy, since an upload of it may come, and of the newest few others. A value, owned by
// Logic with the job's run; loop thread only. It decides nothing.
struct SnapshotReport {
  std::string worker, incarnation;
  std::string called;           // `worker w2 on host node-b`
  std::string manifest_sha256;  // empty while it is being hashed
};

class SnapshotReports {
 public:
  static constexpr int kMostHeld = 16;  // copies of a member; it keeps three

  // `held`, at most kMostHeld: the steps of all copies that the member has now.
  void Add(const Member& from, const v1::Snapshot& snapshot,
           const google::protobuf::RepeatedField<uint64_t>& held);
  // It told of a later step, and has no copy of this one: it will never tell of it.
  [[nodiscard]] bool Passed(const Member& member, uint64_t step) const;
  // Another ring: only these members can still upload a copy.
  void KeepHolders(const std::set<std::string>& members);
  // The member begins anew: what it served before it has dropped, and hashes no more.
  void Drop(const std::string& member);
  // The job was set back: what comes later is computed again.
  void ForgetAfter(uint64_t step);

  // In the order in which they came; also of workers that are gone by now.
  [[nodiscard]] const std::vector<SnapshotReport>& At(uint64_t step) const;
  // Of this process of a worker; null: it told none.
  [[nodiscard]] const SnapshotReport* Of(const Member& member, uint64_t step) const;

 private:
  [[nodiscard]] bool Held(uint64_t step) const;

  std::map<uint64_t, std::vector<SnapshotReport>> by_step_;
  std::map<std::string, std::set<uint64_t>> held_;  // by member
};

}  // namespace ringmaster::coordinator
