// What the holders of a job's snapshots reported of them, each over its own session: the SHA-256 of
// the manifest that a checkpoint of that step must have. Of the newest steps only. A value, owned
// by Logic with the job's run; loop thread only. It decides nothing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coordinator/logic/member.h"

namespace ringmaster::coordinator {

struct SnapshotReport {
  std::string worker, incarnation;
  std::string called;           // `worker w2 on host node-b`
  std::string manifest_sha256;  // empty while it is being hashed
};

class SnapshotReports {
 public:
  void Add(const Member& from, uint64_t step, const std::string& manifest_sha256);
  // The job was set back: what comes later is computed again.
  void ForgetAfter(uint64_t step);

  // In the order in which they came; also of workers that are gone by now.
  [[nodiscard]] const std::vector<SnapshotReport>& At(uint64_t step) const;
  // Of this process of a worker; null: it told none.
  [[nodiscard]] const SnapshotReport* Of(const Member& member, uint64_t step) const;

 private:
  std::map<uint64_t, std::vector<SnapshotReport>> by_step_;
};

}  // namespace ringmaster::coordinator
