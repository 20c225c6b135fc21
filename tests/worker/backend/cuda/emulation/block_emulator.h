// Runs kernels on the host, one block at a time, one fiber a thread of the block: so that a test
// sees what their indices, barriers and shuffles do where there is no GPU. Blocks and threads run
// in either order, and what they touch is checked for races (race_check.h). One thread of the host
// at a time.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <functional>

#include "tests/worker/backend/cuda/emulation/race_check.h"

namespace ringmaster::testing {

// What kernels call threadIdx, blockIdx, blockDim and gridDim.
struct ThreadPlace {
  uint3 thread, block;
  dim3 block_size, grid_size;
};
[[nodiscard]] const ThreadPlace& CurrentThread();

enum class Schedule : uint8_t { kForward, kBackward };
void SetSchedule(Schedule schedule);

// All threads of all blocks. Aborts, with a line, when a block cannot go on: some of its threads
// wait at a barrier that others have left behind, and when threads race, unless that is expected.
void RunGrid(const KernelCall& call, dim3 grid, dim3 block, const std::function<void()>& thread);

// __syncthreads().
void SyncBlock();

// __syncwarp(), of all lanes.
void SyncWarp(unsigned lanes = 0xffffffffU);

// __syncthreads_or(): whether `value` is not 0 on any thread.
[[nodiscard]] int SyncBlockOr(int value);

// `value` as the thread of the same warp has it whose lane differs by `lanes`; eight bytes.
[[nodiscard]] uint64_t ShuffleXorBits(uint64_t value, int lanes);

template <typename T>
[[nodiscard]] T ShuffleXor(unsigned, T value, int lanes) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = ShuffleXorBits(bits, lanes);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// Threads run one at a time, so that what is atomic on a GPU is plain here, which the race check
// need not know; the result is what was there before.
template <typename T>
__attribute__((noinline, no_sanitize_thread)) T AtomicAdd(T* at, T value) {
  NoteAtomic(at, sizeof(T));
  const T before = *at;
  *at += value;
  return before;
}

template <typename T>
__attribute__((noinline, no_sanitize_thread)) T AtomicMin(T* at, T value) {
  NoteAtomic(at, sizeof(T));
  const T before = *at;
  if (value < before) *at = value;
  return before;
}

}  // namespace ringmaster::testing
