// What a worker said about its job and the coordinator must learn, kept so that it can be said
// again in a new session: nothing is lost when the coordinator was away. Owned by WorkerLogic, loop
// thread only. It decides nothing.
#pragma once

#include <optional>
#include <vector>

#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::worker {

class KeptReports {
 public:
  // Joined, StateSaved, and how the run ended replace the one before of their kind; suspicions are
  // kept together. Other messages are not kept.
  void Keep(const v1::WorkerMessage& message);
  // The coordinator knows all of it, or it matters no more.
  void Clear() { *this = KeptReports(); }
  // In the order in which they are said again: the end of the run last.
  [[nodiscard]] std::vector<v1::WorkerMessage> All() const;

 private:
  std::optional<v1::WorkerMessage> joined_;
  std::vector<v1::WorkerMessage> suspicions_;  // at most one a peer: the logic says each once
  std::optional<v1::WorkerMessage> saved_;
  std::optional<v1::WorkerMessage> end_;  // failed, finished or stopped
};

}  // namespace ringmaster::worker
