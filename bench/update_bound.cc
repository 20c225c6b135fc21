#include "bench/update_bound.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "bench/quantile.h"
#include "common/arena.h"

namespace ringmaster::bench {
namespace {

constexpr int kPasses = 9;
constexpr size_t kStrip = 8192;  // elements of every array before the next ones, as an update goes

// A rule as cheap as one can be, on one part of all arrays.
void Pass(std::span<const int32_t> sums, std::vector<std::span<float>> arrays) {
  for (size_t at = 0; at < sums.size(); at += kStrip) {
    const size_t count = std::min(kStrip, sums.size() - at);
    for (const std::span<float>& array : arrays) {
      float* const values = array.data() + at;
      const int32_t* const added = sums.data() + at;
      for (size_t i = 0; i < count; ++i) values[i] += static_cast<float>(added[i]);
    }
  }
}

}  // namespace

double UpdateBound(uint64_t parameters, size_t slots, uint32_t cores) {
  Arena<int32_t> sums(parameters);
  std::vector<Arena<float>> arrays;
  for (size_t i = 0; i < 1 + slots; ++i) arrays.emplace_back(parameters);
  std::vector<double> seconds;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto begin = std::chrono::steady_clock::now();
    {
      std::vector<std::jthread> threads;
      for (uint32_t core = 0; core < cores; ++core) {
        const size_t first = parameters * core / cores;
        const size_t count = parameters * (core + 1) / cores - first;
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
