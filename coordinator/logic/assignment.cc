#include "coordinator/logic/assignment.h"

#include <algorithm>

#include "common/job/shards.h"
#include "common/planted_bug.h"

namespace ringmaster::coordinator {
namespace {

bool MayKeep(const std::vector<uint32_t>& folded, size_t count, const std::vector<bool>& taken) {
  return folded.size() <= count && std::all_of(folded.begin(), folded.end(), [&](uint32_t shard) {
           return shard < taken.size() && !taken[shard];
         });
}

}  // namespace

Assignment Assign(uint32_t shards, std::span<const Seat> seats) {
  std::vector<uint32_t> cores;
  for (const Seat& seat : seats) cores.push_back(seat.cores);
  const std::vector<job::Range> ranges = job::AssignShards(shards, cores);
  Assignment assignment;
  assignment.shards.resize(seats.size());
  std::vector<bool> taken(shards, false);
  for (size_t i = 0; i < seats.size(); ++i) {
    std::vector<uint32_t> folded = seats[i].folded;
    std::sort(folded.begin(), folded.end());
    folded.erase(std::unique(folded.begin(), folded.end()), folded.end());
    if (!MayKeep(folded, ranges[i].size(), taken)) continue;
    for (const uint32_t shard : folded) taken[shard] = true;
    assignment.kept += static_cast<uint32_t>(folded.size());
    assignment.shards[i] = std::move(folded);
  }
  uint32_t next = 0;
  for (size_t i = 0; i < seats.size(); ++i) {
    std::vector<uint32_t>& own = assignment.shards[i];
    while (own.size() < ranges[i].size()) {
      if (RING_PLANTED(kDealsNoMissingShards) && assignment.kept > 0) break;
      while (taken[next] && !RING_PLANTED(kTwoOwners)) ++next;
      own.push_back(next++);
    }
    std::sort(own.begin(), own.end());
  }
  return assignment;
}

}  // namespace ringmaster::coordinator
