// Delivers checkpoints to the coordinator, one at a time, in the order of steps: what
// worker/job/checkpoint_upload does below the trainer's writer. While the coordinator is away, or
// cannot store, it tries again with a growing pause. Owned by a run of the first member, or by a
// trainer that was asked for its state.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "common/status.h"
#include "ringmaster/v1/fleet.pb.h"
#include "ringmaster/v1/job.pb.h"
#include "tests/sim/network.h"
#include "tests/sim/toy_state.h"

namespace ringmaster::sim {

struct Cluster;

class Courier : public std::enable_shared_from_this<Courier> {
 public:
  // `resolved`: of the job, as this worker has it.
  Courier(Cluster* cluster, LifePtr life, int host, const v1::ResolvedJob& resolved,
          std::string job, v1::Generation generation);
  ~Courier() { Stop(); }

  void Submit(uint64_t step, StateHash state);
  [[nodiscard]] bool idle() const { return queue_.empty(); }
  // Once, when it is idle, at once when it is; `error` is empty when everything was taken in.
  void WhenIdle(std::function<void(const std::string& error)> then);
  void Stop();
  // SHA-256 of the newest manifest that was taken in.
  [[nodiscard]] const std::string& manifest() const { return manifest_; }

 private:
  struct Parcel {
    uint64_t step = 0;
    StateHash state = 0;
  };
  void Try();
  void TryLater();
  void Answered(const Status& status);
  void Settle();

  Cluster* const cluster_;
  const LifePtr life_;
  const int host_;
  const std::string result_digest_;
  const ClassMaps class_maps_;  // as it stands in its manifests
  const std::string job_;
  const v1::Generation generation_;
  std::deque<Parcel> queue_;
  ConnectionPtr connection_;
  uint64_t attempt_ = 0;
  Time pause_ = milliseconds(100);
  bool stopped_ = false;
  std::string error_, manifest_;
  std::function<void(const std::string&)> then_;
};

}  // namespace ringmaster::sim
