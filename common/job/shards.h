// Which samples a shard of a step has, and which shards a worker gets. Pure arithmetic, no shuffle
// buffer; thread-safe (free functions).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ringmaster::job {

struct Range {
  uint64_t begin = 0, end = 0;  // [begin, end)
  uint64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// Samples of step k inside its epoch's permuted order: [b * batch, min((b + 1) * batch, samples)),
// b = k mod steps_per_epoch.
[[nodiscard]] Range BatchOf(uint64_t step, uint64_t batch, uint64_t samples);

// An evaluation of S(applied) is due: at multiples of `every`, and on the last state. (A watch may
// make an earlier state the last; that one was evaluated.)
[[nodiscard]] bool EvaluatesAfter(uint64_t applied, uint64_t every, uint64_t total_steps);

// Slice of shard s among V of a batch of n samples: [floor(s n / V), floor((s + 1) n / V)).
[[nodiscard]] Range ShardOf(uint32_t shard, uint32_t shards, uint64_t n);

// A keyed permutation of [0, n), evaluated at any index in O(1): a Feistel network over the next
// even power of two with cycle walking, keyed by (seed, epoch).
class Permutation {
 public:
  Permutation(uint64_t seed, uint64_t epoch, uint64_t n);
  [[nodiscard]] uint64_t At(uint64_t index) const;

 private:
  uint64_t n_;
  uint32_t half_bits_;
  uint32_t keys_[8];
};

// Contiguous shard ranges in ring order, at least one each, the rest in proportion to cores by
// largest remainder (ties: first in the ring). cores.size() <= shards, every core count >= 1.
[[nodiscard]] std::vector<Range> AssignShards(uint32_t shards, std::span<const uint32_t> cores);

}  // namespace ringmaster::job
