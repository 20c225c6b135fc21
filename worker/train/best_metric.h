// Which evaluated state of a job is the best so far, by `checkpoint.best`. Derived state: every
// worker sees the same evaluations and keeps the same; it stands in no checkpoint. Step thread; one
// for each job, over all its generations.
#pragma once

#include <optional>

#include "ringmaster/v1/job.pb.h"
#include "worker/train/checkpoint_sink.h"
#include "worker/train/progress.h"

namespace ringmaster::worker {

class BestMetric {
 public:
  explicit BestMetric(v1::BestMetric metric) : metric_(metric) {}

  [[nodiscard]] bool wanted() const { return metric_ != v1::BEST_METRIC_UNSPECIFIED; }

  // S(step) was evaluated. States come in order; the newest one may come again, and stands as it
  // stood.
  [[nodiscard]] Standing Look(uint64_t step, const std::optional<Evaluation>& validation,
                              const std::optional<Evaluation>& test);

 private:
  const v1::BestMetric metric_;
  struct Best {
    uint64_t step = 0;
    double value = 0;
  };
  std::optional<Best> best_;
};

}  // namespace ringmaster::worker
