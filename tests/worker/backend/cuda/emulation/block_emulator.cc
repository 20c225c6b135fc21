#include "tests/worker/backend/cuda/emulation/block_emulator.h"

#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace ringmaster::testing {
namespace {

constexpr size_t kStackBytes = size_t{128} << 10;
constexpr size_t kWarp = 32;

enum class State : uint8_t { kReady, kAtBarrier, kAtWarpBarrier, kAtShuffle, kDone };

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  uint3 thread = {};
  State state = State::kDone;
  uint64_t given = 0;  // to a shuffle or a vote
  ThreadProgress progress;
};

struct Machine {
  std::vector<Fiber> fibers;
  ucontext_t scheduler;
  const std::function<void()>* body = nullptr;
  Fiber* current = nullptr;
  ThreadPlace place;
  Schedule schedule = Schedule::kForward;
  uint32_t blocks = 0;  // of this launch, so far
};

Machine& TheMachine() {
  static Machine machine;
  return machine;
}

void Enter() {
  (*TheMachine().body)();
  TheMachine().current->state = State::kDone;
  swapcontext(&TheMachine().current->context, &TheMachine().scheduler);
}

void WaitAs(State state) {
  Machine& machine = TheMachine();
  machine.current->state = state;
  swapcontext(&machine.current->context, &machine.scheduler);
}

void Start(Fiber& fiber, dim3 block, unsigned i) {
  if (!fiber.stack) fiber.stack = std::make_unique<char[]>(kStackBytes);
  fiber.thread = {i % block.x, i / block.x % block.y, i / block.x / block.y};
  fiber.state = State::kReady;
  const auto stack = reinterpret_cast<uintptr_t>(fiber.stack.get());
  fiber.progress = {.block = TheMachine().blocks,
                    .thread = i,
                    .stack_begin = stack,
                    .stack_end = stack + kStackBytes};
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, Enter, 0);
}

// Whether every one of [first, last) waits in `state`, those that are done aside, and one does.
bool AllAt(size_t first, size_t last, State state) {
  bool some = false;
  for (size_t i = first; i < last; ++i) {
    const State now = TheMachine().fibers[i].state;
    if (now == state) some = true;
    if (now != state && now != State::kDone) return false;
  }
  return some;
}

void Release(size_t first, size_t last) {
  for (size_t i = first; i < last; ++i) {
    Fiber& fiber = TheMachine().fibers[i];
    if (fiber.state != State::kDone) fiber.state = State::kReady;
  }
}

// Runs every ready fiber until it waits or is done.
bool RunReady(size_t threads) {
  Machine& machine = TheMachine();
  bool ran = false;
  for (size_t i = 0; i < threads; ++i) {
    Fiber& fiber = machine.fibers[machine.schedule == Schedule::kForward ? i : threads - 1 - i];
    if (fiber.state != State::kReady) continue;
    machine.current = &fiber;
    machine.place.thread = fiber.thread;
    SetRunningThread(&fiber.progress);
    swapcontext(&machine.scheduler, &fiber.context);
    SetRunningThread(nullptr);
    ran = true;
  }
  return ran;
}

void RunBlock(dim3 block) {
  const size_t threads = size_t{block.x} * block.y * block.z;
  std::vector<Fiber>& fibers = TheMachine().fibers;
  if (fibers.size() < threads) fibers.resize(threads);
  for (size_t i = 0; i < threads; ++i) Start(fibers[i], block, static_cast<unsigned>(i));
  while (true) {
    bool moved = RunReady(threads);
    for (size_t first = 0; first < threads; first += kWarp) {
      const size_t last = std::min(first + kWarp, threads);
      if (!AllAt(first, last, State::kAtShuffle) && !AllAt(first, last, State::kAtWarpBarrier)) {
        continue;
      }
      Release(first, last);
      moved = true;
    }
    if (AllAt(0, threads, State::kAtBarrier)) {
      // The hardware lets threads leave before a barrier; no kernel here means to.
      for (size_t i = 0; i < threads; ++i) {
        if (fibers[i].state != State::kDone) continue;
        std::fprintf(stderr, "emulation: thread %zu left before a barrier of its block\n", i);
        std::abort();
      }
      Release(0, threads);
      moved = true;
    }
    if (AllAt(0, threads, State::kDone)) return;
    if (moved) continue;
    std::fprintf(stderr, "emulation: the threads of a block wait for different things\n");
    std::abort();
  }
}

}  // namespace

const ThreadPlace& CurrentThread() { return TheMachine().place; }

void SetSchedule(Schedule schedule) { TheMachine().schedule = schedule; }

void RunGrid(const KernelCall& call, dim3 grid, dim3 block, const std::function<void()>& thread) {
  Machine& machine = TheMachine();
  BeginRaceCheck(call);
  machine.body = &thread;
  machine.place.block_size = block;
  machine.place.grid_size = grid;
  for (unsigned i = 0; i < grid.x; ++i) {
    machine.place.block = {machine.schedule == Schedule::kForward ? i : grid.x - 1 - i, 0, 0};
    machine.blocks = i;
    RunBlock(block);
  }
  EndRaceCheck();
}

void SyncBlock() {
  WaitAs(State::kAtBarrier);
  TheMachine().current->progress.PassBarrier();
}

void SyncWarp(unsigned) {
  WaitAs(State::kAtWarpBarrier);
  TheMachine().current->progress.PassWarpBarrier();
}

int SyncBlockOr(int value) {
  Machine& machine = TheMachine();
  const dim3 block = machine.place.block_size;
  machine.current->given = value != 0 ? 1 : 0;
  SyncBlock();
  uint64_t any = 0;
  for (size_t i = 0; i < size_t{block.x} * block.y * block.z; ++i) any |= machine.fibers[i].given;
  // Nobody gives again before everybody has looked.
  WaitAs(State::kAtBarrier);
  return static_cast<int>(any);
}

uint64_t ShuffleXorBits(uint64_t value, int lanes) {
  Machine& machine = TheMachine();
  Fiber* const mine = machine.current;
  mine->given = value;
  WaitAs(State::kAtShuffle);
  const auto index = static_cast<size_t>(mine - machine.fibers.data());
  const uint64_t got = machine.fibers[index ^ static_cast<size_t>(lanes)].given;
  // Nobody gives again before everybody has taken.
  WaitAs(State::kAtShuffle);
  return got;
}

}  // namespace ringmaster::testing
