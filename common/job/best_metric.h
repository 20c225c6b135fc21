// Which way `checkpoint.best` points. Pure; thread-safe (a free function).
#pragma once

#include "ringmaster/v1/job.pb.h"

namespace ringmaster::job {

[[nodiscard]] inline bool LowerIsBetter(v1::BestMetric metric) {
  return metric == v1::BEST_METRIC_TEST_LOSS || metric == v1::BEST_METRIC_VALIDATION_LOSS;
}

}  // namespace ringmaster::job
