#include "bench/training/update_bound.h"

#include <chrono>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "bench/quantile.h"
#include "common/arena.h"
#include "common/exact/block.h"

namespace ringmaster::bench {
namespace {

constexpr int kPasses = 9;
using exact::kBlockElements;

// A rule as cheap as one can be. Of a constant count and apart from each other, so that this is
// vector code.
void AddBlock(const int32_t* __restrict added, float* __restrict values) {
  for (size_t i = 0; i < kBlockElements; ++i) values[i] += static_cast<float>(added[i]);
}

// A part of all arrays, a block of each before the next ones, as an update goes.
void Pass(std::span<const int32_t> sums, const std::vector<std::span<float>>& arrays) {
  for (size_t at = 0; at < sums.size(); at += kBlockElements) {
    for (const std::span<float>& array : arrays) AddBlock(sums.data() + at, array.data() + at);
  }
}

}  // namespace

double UpdateBound(uint64_t parameters, size_t slots, uint32_t cores) {
  const size_t blocks = (parameters + kBlockElements - 1) / kBlockElements;
  Arena<int32_t> sums(blocks * kBlockElements);
  std::vector<Arena<float>> arrays;
  for (size_t i = 0; i < 1 + slots; ++i) arrays.emplace_back(blocks * kBlockElements);
  std::vector<double> seconds;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto begin = std::chrono::steady_clock::now();
    {
      std::vector<std::jthread> threads;
      for (uint32_t core = 0; core < cores; ++core) {
        const size_t first = blocks * core / cores * kBlockElements;
        const size_t count = blocks * (core + 1) / cores * kBlockElements - first;
        std::vector<std::span<float>> parts;
        for (Arena<float>& array : arrays) parts.push_back(array.span().subspan(first, count));
        threads.emplace_back(Pass, std::span<const int32_t>(sums.span().subspan(first, count)),
                             std::move(parts));
      }
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    seconds.push_back(took.count());
  }
  return Quantile(seconds, 0.5);
}

}  // namespace ringmaster::bench
