// Finds data races of kernels on the block emulator, and what they touch behind the end of a
// buffer. Kernels are compiled with GCC's instrumentation for ThreadSanitizer, whose runtime this
// file is instead: of every byte that threads of one launch touch, it knows who last wrote it and
// who has read it, and which barriers lay behind them. Two accesses of different threads, one of
// them a write, are a race when no
// __syncthreads() of their block, and within a warp no __syncwarp(), lies between; blocks of one
// launch are never ordered, and shuffles order no memory (CUDA C++ Programming Guide, "Warp Shuffle
// Functions"). Atomics race with plain accesses alone. Not seen are accesses that the optimizer
// removes, and those of functions that are not instrumented. Kernels run on one thread of the host
// at a time; what other threads do meanwhile is not looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ringmaster::testing {

// What a report calls a kernel and the memory that it was given.
struct KernelCall {
  struct Pointer {
    size_t parameter;  // in which it lies, from 0
    uintptr_t to;
  };
  const void* function = nullptr;
  std::vector<Pointer> pointers;
};

// How far a thread of a block is. The emulator has one for each fiber.
struct ThreadProgress {
  uint32_t block = 0;   // its number in the launch, in the order in which blocks run
  uint32_t thread = 0;  // its number in the block
  uint32_t barriers = 0;
  uint32_t warp_barriers = 0;
  uint32_t moment =
      0;  // as the check calls what the thread does from its last barrier on; 0: nothing yet
  uintptr_t stack_begin = 0;
  uintptr_t stack_end = 0;

  void PassBarrier() { ++barriers, moment = 0; }
  void PassWarpBarrier() { ++warp_barriers, moment = 0; }
};

// A launch begins: nobody has touched anything.
void BeginRaceCheck(const KernelCall& call);

// Whose accesses the next ones of this thread of the host are; nullptr: nobody's.
void SetRunningThread(ThreadProgress* thread);

// No kernel may touch the 64 bytes of memory in which `end` lies from there on, as behind the end
// of a buffer; the report of a launch that does has a line of it. Until AllowFrom, which asks not
// whether that was said.
void ForbidFrom(const void* end);
void AllowFrom(const void* end);

// An atomic one of the running thread.
void NoteAtomic(const void* at, size_t bytes);

// The launch ends: with a line for each race on the standard error, and an abort, unless somebody
// has asked for them.
void EndRaceCheck();

// While it lives, races end nothing but are its own.
class ExpectRaces {
 public:
  ExpectRaces();
  ~ExpectRaces();
  ExpectRaces(const ExpectRaces&) = delete;
  ExpectRaces& operator=(const ExpectRaces&) = delete;

  // One line each: kernel, both threads, what they did and where in the source, and which byte of
  // which shared array, or behind the pointer of which parameter. One of each pair of places in the
  // source.
  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }

 private:
  friend void EndRaceCheck();
  std::vector<std::string> lines_;
};

// Accesses seen since the program began.
[[nodiscard]] uint64_t CheckedAccesses();

}  // namespace ringmaster::testing
