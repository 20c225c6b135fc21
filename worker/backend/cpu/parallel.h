// Loops over a core's fixed group of threads, in the widest vectors of the machine. The split
// depends on the loop's length and the thread count alone; bodies that write disjoint results give
// the same bits for every thread count. Called from the core's thread only; a body must not call it
// again.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace ringmaster::cpu {

// A run of a loop's bodies, compiled twice: for every supported machine, and in vectors of 512 bits
// for those that have AVX-512. Both do the same operations to each element, none of them
// contracted, so their bits are equal.
template <typename Body>
void RunBodies(Body& body, int64_t first, int64_t last) {
  for (int64_t i = first; i < last; ++i) body(i);
}

template <typename Body>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"), flatten)) void
RunBodiesWide(Body& body, int64_t first, int64_t last) {
  for (int64_t i = first; i < last; ++i) body(i);
}

inline bool HasWideVectors() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has;
}

// body(i) for i in [0, count).
template <typename Body>
void ParallelFor(int threads, int64_t count, Body&& body) {
  auto* const run = HasWideVectors() ? RunBodiesWide<std::remove_reference_t<Body>>
                                     : RunBodies<std::remove_reference_t<Body>>;
  if (threads == 1) return run(body, 0, count);
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t thread = 0; thread < threads; ++thread) {
    run(body, count * thread / threads, count * (thread + 1) / threads);
  }
}

// Elements of a piece in loops over elements.
inline constexpr int64_t kElementPiece = 8192;

// body(first, last) for pieces of [0, count) of at most `piece` each.
template <typename Body>
void ParallelPieces(int threads, int64_t count, int64_t piece, Body&& body) {
  ParallelFor(threads, (count + piece - 1) / piece, [&](int64_t i) {
    const int64_t first = i * piece;
    body(first, first + piece < count ? first + piece : count);
  });
}

// A sum in double with one fixed order: element i of a row to lane i mod 8, in the end lanes
// pairwise. A value; thread-compatible.
class LaneSum {
 public:
  // f(i) for i in [0, count): a row, or such a part of it that only the last is not of whole lanes.
  template <typename F>
  void Add(int64_t count, const F& f) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        lanes_[lane] += static_cast<double>(f(i + lane));
      }
    }
    for (int64_t lane = 0; i < count; ++i, ++lane) lanes_[lane] += static_cast<double>(f(i));
  }

  [[nodiscard]] double Total() const {
    double sums[kLanes / 2];
    for (int64_t lane = 0; lane < kLanes / 2; ++lane) {
      sums[lane] = lanes_[lane] + lanes_[lane + kLanes / 2];
    }
    return (sums[0] + sums[2]) + (sums[1] + sums[3]);
  }

 private:
  static constexpr int64_t kLanes = 8;
  double lanes_[kLanes] = {};
};

}  // namespace ringmaster::cpu
