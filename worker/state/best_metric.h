// Which evaluated state of a job is the best so far, by `checkpoint.best`. Derived from the past:
// every worker sees the same evaluations and keeps the same. It stands in no checkpoint, so after a
// restore the first evaluated state is the best known. One for each job, over all its generations;
// step thread, under the job's state_mu.
#pragma once

#include <optional>

#include "ringmaster/v1/job.pb.h"
#include "worker/state/checkpoint.h"
#include "worker/state/checkpoint_sink.h"

namespace ringmaster::worker {

class BestMetric {
 public:
  explicit BestMetric(const v1::ResolvedJob& job) {
    if (job.has_best()) metric_ = job.best();
  }

  [[nodiscard]] bool wanted() const { return metric_.has_value(); }

  // S(step) was evaluated. States come in order; the newest one may come again, and stands as it
  // stood.
  [[nodiscard]] Standing Look(uint64_t step, const std::optional<Evaluation>& validation,
                              const std::optional<Evaluation>& test);

  // What it remembers, for a peer; and from a peer, or nothing after a restore.
  [[nodiscard]] const std::optional<StateCopy::Best>& best() const { return best_; }
  void Set(const std::optional<StateCopy::Best>& best) { best_ = best; }

 private:
  std::optional<v1::BestMetric> metric_;
  std::optional<StateCopy::Best> best_;
};

}  // namespace ringmaster::worker
