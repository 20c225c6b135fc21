#include "coordinator/logic/state_digests.h"

#include "coordinator/logic/agreement.h"

namespace ringmaster::coordinator {

Status StateDigests::Add(uint64_t step, const std::string& worker, const std::string& digest) {
  const auto [seen, fresh] = first_.try_emplace(step, Witness{worker, digest});
  if (!fresh) {
    return SameDigest(step, {seen->second.worker, seen->second.digest}, {worker, digest});
  }
  order_.push_back(step);
  if (order_.size() > kMost) {
    first_.erase(order_.front());
    order_.pop_front();
  }
  return absl::OkStatus();
}

void StateDigests::GoOnFrom(uint64_t step) {
  first_.erase(first_.upper_bound(step), first_.end());
  std::erase_if(order_, [step](uint64_t known) { return known > step; });
}

}  // namespace ringmaster::coordinator
