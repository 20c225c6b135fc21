#include "coordinator/logic/retention.h"

#include <algorithm>

#include "common/job/best_metric.h"

namespace ringmaster::coordinator {

const CheckpointRecord* BestOf(const CheckpointList& checkpoints, v1::BestMetric metric) {
  const CheckpointRecord* best = nullptr;
  for (const CheckpointRecord& each : checkpoints) {
    if (!each.best) continue;
    const bool better =
        best == nullptr || (job::LowerIsBetter(metric) ? each.ref.metric() < best->ref.metric()
                                                       : each.ref.metric() > best->ref.metric());
    if (better) best = &each;
  }
  return best;
}

void Keep(const CheckpointRecord& checkpoint, CheckpointList& checkpoints) {
  const auto place =
      std::lower_bound(checkpoints.begin(), checkpoints.end(), checkpoint,
                       [](const auto& a, const auto& b) { return a.ref.step() < b.ref.step(); });
  if (place != checkpoints.end() && place->ref.step() == checkpoint.ref.step()) {
    *place = checkpoint;
  } else {
    checkpoints.insert(place, checkpoint);
  }
}

CheckpointList TakeSuperseded(const v1::CheckpointOptions& options, CheckpointList& checkpoints) {
  CheckpointList superseded;
  const size_t keep = std::max<size_t>(2, options.keep());
  if (checkpoints.size() <= keep) return superseded;
  const CheckpointRecord* best = BestOf(checkpoints, options.best());
  const uint64_t best_step = best == nullptr ? 0 : best->ref.step();
  const auto newest = checkpoints.end() - static_cast<std::ptrdiff_t>(keep);
  const auto kept = std::stable_partition(
      checkpoints.begin(), newest,
      [best_step](const CheckpointRecord& c) { return c.ref.step() != best_step; });
  superseded.assign(checkpoints.begin(), kept);
  checkpoints.erase(checkpoints.begin(), kept);
  return superseded;
}

}  // namespace ringmaster::coordinator
