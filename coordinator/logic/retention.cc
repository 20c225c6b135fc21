#include "coordinator/logic/retention.h"

#include <algorithm>

namespace ringmaster::coordinator {

const CheckpointRecord* BestOf(const CheckpointList& checkpoints) {
  const auto best = std::find_if(checkpoints.rbegin(), checkpoints.rend(),
                                 [](const CheckpointRecord& c) { return c.best; });
  return best == checkpoints.rend() ? nullptr : &*best;
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

CheckpointList TakeSuperseded(size_t keep, CheckpointList& checkpoints) {
  CheckpointList superseded;
  if (checkpoints.size() <= keep) return superseded;
  const CheckpointRecord* best = BestOf(checkpoints);
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
