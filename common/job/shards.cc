#include "common/job/shards.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "common/check.h"
#include "common/numeric/philox.h"

namespace ringmaster::job {
namespace {

__extension__ using Wide = unsigned __int128;

// Mixes one half with a round key. Any function makes a permutation; multiply and xor-shift (as in
// the 32-bit finalizers of hash functions) make a well mixed one.
uint32_t Round(uint32_t half, uint32_t key) {
  uint32_t x = half ^ key;
  x ^= x >> 16;
  x *= 0x7feb352d;
  x ^= x >> 15;
  x *= 0x846ca68b;
  x ^= x >> 16;
  return x + key;
}

}  // namespace

Range BatchOf(uint64_t step, uint64_t batch, uint64_t samples) {
  RING_CHECK(batch > 0 && samples > 0, "an epoch without batches");
  const uint64_t steps_per_epoch = (samples - 1) / batch + 1;
  const uint64_t begin = step % steps_per_epoch * batch;
  return {begin, begin + std::min(batch, samples - begin)};
}

bool EvaluatesAfter(uint64_t applied, uint64_t every, uint64_t total_steps) {
  return applied == total_steps || (applied > 0 && applied % every == 0);
}

Range ShardOf(uint32_t shard, uint32_t shards, uint64_t n) {
  RING_CHECK(shard < shards, "no such shard");
  return {static_cast<uint64_t>(Wide{shard} * n / shards),
          static_cast<uint64_t>((Wide{shard} + 1) * n / shards)};
}

Permutation::Permutation(uint64_t seed, uint64_t epoch, uint64_t n) : n_(n) {
  RING_CHECK(n > 0, "a permutation of nothing");
  const auto bits = static_cast<uint32_t>(std::bit_width(n - 1));
  half_bits_ = std::max(1U, (bits + 1) / 2);
  const PhiloxStream stream(seed, PhiloxStream::Purpose::kPermutation, epoch, 0, "");
  for (uint32_t i = 0; i < std::size(keys_); ++i) keys_[i] = stream.At(i);
}

uint64_t Permutation::At(uint64_t index) const {
  RING_CHECK(index < n_, "index past the end of a permutation");
  const auto mask = static_cast<uint32_t>((uint64_t{1} << half_bits_) - 1);
  // Cycle walking: the network permutes a power of two up to 4 n; follow the cycle back into
  // [0, n).
  do {
    auto left = static_cast<uint32_t>(index >> half_bits_);
    auto right = static_cast<uint32_t>(index) & mask;
    for (const uint32_t key : keys_) {
      const uint32_t next = (left ^ Round(right, key)) & mask;
      left = right;
      right = next;
    }
    index = uint64_t{left} << half_bits_ | right;
  } while (index >= n_);
  return index;
}

std::vector<Range> AssignShards(uint32_t shards, std::span<const uint32_t> cores) {
  const size_t workers = cores.size();
  RING_CHECK(workers > 0 && workers <= shards, "every worker needs a shard");
  const uint64_t total = std::accumulate(cores.begin(), cores.end(), uint64_t{0});
  RING_CHECK(total > 0, "every worker has a core");
  const uint64_t rest = shards - workers;
  std::vector<uint64_t> counts(workers), remainders(workers);
  uint64_t given = workers;
  for (size_t i = 0; i < workers; ++i) {
    counts[i] = 1 + rest * cores[i] / total;
    remainders[i] = rest * cores[i] % total;
    given += counts[i] - 1;
  }
  std::vector<size_t> order(workers);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return remainders[a] > remainders[b]; });
  for (size_t i = 0; given < shards; ++i, ++given) ++counts[order[i]];
  std::vector<Range> ranges(workers);
  uint64_t begin = 0;
  for (size_t i = 0; i < workers; ++i) {
    ranges[i] = {begin, begin + counts[i]};
    begin += counts[i];
  }
  return ranges;
}

}  // namespace ringmaster::job
