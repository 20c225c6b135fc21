#include "worker/logic/step_digests.h"

#include <algorithm>
#include <utility>

namespace ringmaster::worker {

void StepDigests::Add(uint64_t step, const std::string& digest) {
  if (step <= last_) return;
  last_ = step;
  if (step % stride_ != 0) return;
  v1::StepDigest& added = *kept_.Add();
  added.set_step(step);
  added.set_digest(digest);
  while (kept_.size() > kMost) {
    stride_ *= 2;
    const auto odd = std::remove_if(kept_.begin(), kept_.end(), [this](const v1::StepDigest& kept) {
      return kept.step() % stride_ != 0;
    });
    kept_.erase(odd, kept_.end());
  }
}

StepDigests::List StepDigests::Take() {
  stride_ = 1;
  return std::exchange(kept_, {});
}

}  // namespace ringmaster::worker
