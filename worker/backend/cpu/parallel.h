// Loops over a core's fixed group of threads. The split depends on the loop's length and the thread
// count alone; bodies that write disjoint results give the same bits for every thread count.
// Called from the core's thread only; a body must not call it again.
#pragma once

#include <cstdint>
#include <utility>

namespace ringmaster::cpu {

// body(i) for i in [0, count).
template <typename Body>
void ParallelFor(int threads, int64_t count, Body&& body) {
  if (threads == 1) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t i = 0; i < count; ++i) body(i);
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

}  // namespace ringmaster::cpu
