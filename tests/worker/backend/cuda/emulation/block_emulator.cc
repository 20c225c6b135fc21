#include "tests/worker/backend/cuda/emulation/block_emulator.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#if !defined(__x86_64__)
#error "fibers are switched by x86-64's calling convention"
#endif

// Leaves the stack in use, whose top it says, for another one, and comes back when somebody leaves
// for that top. A kernel switches millions of times: swapcontext, which asks the system for the
// signal mask each time, took most of these tests.
extern "C" void RingSwitchStack(void** leave, void* enter);
asm(R"(
  .text
  .type RingSwitchStack, @function
RingSwitchStack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size RingSwitchStack, . - RingSwitchStack
)");

namespace ringmaster::testing {
namespace {

constexpr size_t kStackBytes = size_t{128} << 10;
constexpr size_t kWarp = 32;

enum class State : uint8_t { kReady, kAtBarrier, kAtWarpBarrier, kAtShuffle, kDone };

// What a thread gave to the others: whoever gives again has seen everybody at the last one, and so
// everybody has taken what was given before that.
struct Gifts {
  std::array<uint64_t, 2> values = {};
  size_t count = 0;
};

struct Fiber {
  void* top = nullptr;  // of its stack, while others run
  std::unique_ptr<char[]> stack;
  uint3 thread = {};
  State state = State::kDone;
  Gifts shuffles, votes;
  ThreadProgress progress;
};

struct Machine {
  std::vector<Fiber> fibers;
  void* scheduler = nullptr;  // the top of its stack, likewise
  const std::function<void()>* body = nullptr;
  Fiber* current = nullptr;
  ThreadPlace place;
  Schedule schedule = Schedule::kForward;
  uint32_t blocks = 0;  // of this launch, so far
  size_t threads = 0;   // of a block
};

Machine& TheMachine() {
  static Machine machine;
  return machine;
}

// The next ready fiber in the order of the schedule, of those from its place `from` on.
Fiber* ReadyFrom(size_t from) {
  Machine& machine = TheMachine();
  for (size_t i = from; i < machine.threads; ++i) {
    const bool forward = machine.schedule == Schedule::kForward;
    Fiber& fiber = machine.fibers[forward ? i : machine.threads - 1 - i];
    if (fiber.state == State::kReady) return &fiber;
  }
  return nullptr;
}

// Goes on with a fiber, or with the scheduler.
void SwitchTo(Fiber* fiber, void** leave) {
  Machine& machine = TheMachine();
  if (fiber != nullptr) machine.place.thread = fiber->thread;
  SetRunningThread(fiber != nullptr ? &fiber->progress : nullptr);
  machine.current = fiber;
  RingSwitchStack(leave, fiber != nullptr ? fiber->top : machine.scheduler);
}

// The scheduler comes next only when nobody behind this fiber is ready.
void WaitAs(State state) {
  Machine& machine = TheMachine();
  Fiber* const mine = machine.current;
  mine->state = state;
  const auto index = static_cast<size_t>(mine - machine.fibers.data());
  const bool forward = machine.schedule == Schedule::kForward;
  SwitchTo(ReadyFrom((forward ? index : machine.threads - 1 - index) + 1), &mine->top);
}

void Enter() {
  (*TheMachine().body)();
  WaitAs(State::kDone);
}

// Gives, and waits until all others have; the place of what they gave.
size_t Give(Gifts* gifts, uint64_t value, State state) {
  const size_t place = gifts->count++ % gifts->values.size();
  gifts->values[place] = value;
  WaitAs(state);
  return place;
}

void Start(Fiber& fiber, dim3 block, unsigned i) {
  if (!fiber.stack) fiber.stack = std::make_unique<char[]>(kStackBytes);
  fiber.thread = {i % block.x, i / block.x % block.y, i / block.x / block.y};
  fiber.state = State::kReady;
  fiber.shuffles = fiber.votes = {};
  const auto stack = reinterpret_cast<uintptr_t>(fiber.stack.get());
  fiber.progress = {.block = TheMachine().blocks,
                    .thread = i,
                    .stack_begin = stack,
                    .stack_end = stack + kStackBytes};
  // As if Enter had been left: its address, on a multiple of 16, beneath it the six registers.
  auto* const entry = reinterpret_cast<uintptr_t*>((stack + kStackBytes - 64) & ~uintptr_t{15});
  *entry = reinterpret_cast<uintptr_t>(&Enter);
  fiber.top = std::fill_n(entry - 6, 6, 0) - 6;
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
bool RunReady() {
  Fiber* const first = ReadyFrom(0);
  if (first != nullptr) SwitchTo(first, &TheMachine().scheduler);
  return first != nullptr;
}

void RunBlock(dim3 block) {
  const size_t threads = size_t{block.x} * block.y * block.z;
  TheMachine().threads = threads;
  std::vector<Fiber>& fibers = TheMachine().fibers;
  if (fibers.size() < threads) fibers.resize(threads);
  for (size_t i = 0; i < threads; ++i) Start(fibers[i], block, static_cast<unsigned>(i));
  while (true) {
    bool moved = RunReady();
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
  const size_t place = Give(&machine.current->votes, value != 0 ? 1 : 0, State::kAtBarrier);
  machine.current->progress.PassBarrier();
  uint64_t any = 0;
  for (size_t i = 0; i < machine.threads; ++i) any |= machine.fibers[i].votes.values[place];
  return static_cast<int>(any);
}

uint64_t ShuffleXorBits(uint64_t value, int lanes) {
  const Machine& machine = TheMachine();
  const size_t place = Give(&machine.current->shuffles, value, State::kAtShuffle);
  const auto index = static_cast<size_t>(machine.current - machine.fibers.data());
  return machine.fibers[index ^ static_cast<size_t>(lanes)].shuffles.values[place];
}

}  // namespace ringmaster::testing
