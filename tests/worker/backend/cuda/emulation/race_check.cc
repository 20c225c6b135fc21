#include "tests/worker/backend/cuda/emulation/race_check.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <set>
#include <unordered_map>
#include <utility>

// Of GCC's libbacktrace, which its header says only to GCC itself.
extern "C" {
struct backtrace_state;
using BacktraceError = void (*)(void* data, const char* message, int number);
backtrace_state* backtrace_create_state(const char* program, int threaded, BacktraceError, void*);
int backtrace_pcinfo(backtrace_state*, uintptr_t at,
                     int (*)(void* data, uintptr_t at, const char* file, int line,
                             const char* function),
                     BacktraceError, void* data);
int backtrace_syminfo(backtrace_state*, uintptr_t at,
                      void (*)(void* data, uintptr_t at, const char* name, uintptr_t value,
                               uintptr_t size),
                      BacktraceError, void* data);
}

// Of the linker: where the program begins, and its variables.
extern "C" {
extern const char __executable_start[];  // NOLINT(bugprone-reserved-identifier)
extern const char __data_start[];        // NOLINT(bugprone-reserved-identifier)
extern const char _end[];                // NOLINT(bugprone-reserved-identifier)
}

namespace ringmaster::testing {
namespace {

constexpr uint32_t kLanes = 32;
constexpr uintptr_t kLineBytes = 64;
constexpr uintptr_t kWidest = 16;  // one access

// What lies where in this program, by its symbols and its debug information.

void IgnoreError(void*, const char*, int) {}

backtrace_state* Symbols() {
  static backtrace_state* const state = backtrace_create_state(nullptr, 0, IgnoreError, nullptr);
  return state;
}

std::string Demangled(const char* name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string demangled = text != nullptr ? text : name;
  std::free(text);
  return demangled;
}

// "NAME", or "byte 8 of NAME": a function or a variable.
std::string NameOf(uintptr_t at) {
  std::string name = fmt::format("{:#x}", at);
  backtrace_syminfo(
      Symbols(), at,
      [](void* data, uintptr_t where, const char* symbol, uintptr_t value, uintptr_t) {
        if (symbol == nullptr) return;
        *static_cast<std::string*>(data) =
            where == value ? Demangled(symbol)
                           : fmt::format("byte {} of {}", where - value, Demangled(symbol));
      },
      IgnoreError, &name);
  return name;
}

// "sums.h:27", of the instruction before this one; the function where lines are not known.
std::string LineOfCode(uintptr_t code) {
  std::string place;
  backtrace_pcinfo(
      Symbols(), code - 1,
      [](void* data, uintptr_t, const char* file, int line, const char*) {
        if (file == nullptr) return 0;
        const std::string path = file;
        *static_cast<std::string*>(data) =
            fmt::format("{}:{}", path.substr(path.rfind('/') + 1), line);
        return 1;  // the innermost of inlined functions
      },
      IgnoreError, &place);
  return place.empty() ? NameOf(code) : place;
}

enum class Access : uint8_t { kRead, kWrite, kAtomic };

// A thread between two barriers.
struct Moment {
  uint32_t block, thread, barriers, warp_barriers;
};

// Who touched a piece of memory, and where in the code; of moment 0 nobody.
struct Mark {
  uint32_t moment = 0;
  uint32_t code = 0;  // behind __executable_start
};

// A piece of memory. Two marks of a kind are enough: see Keep.
struct Cell {
  Mark writer;
  std::array<Mark, 2> readers;
  std::array<Mark, 2> atomics;
};

// Memory in pieces of the size that accesses to it have, or of their smallest.
struct Line {
  uint32_t block = 0;  // of shared memory: whose it is
  uintptr_t piece = 0;
  std::vector<Cell> cells;      // kLineBytes / piece
  uintptr_t end = UINTPTR_MAX;  // from which on it is forbidden
};

struct Shadow {
  KernelCall call;
  std::vector<Moment> moments;
  std::deque<Line> lines;  // the first `used` are this launch's
  size_t used = 0;
  std::unordered_map<uintptr_t, Line*> line_of;
  std::unordered_map<uintptr_t, uintptr_t> end_in;  // of a line, where it is forbidden from
  std::array<std::pair<uintptr_t, Line*>, 4096> recent;
  std::set<std::pair<uint32_t, uint32_t>> told;  // both places in the code; 0: behind an end
  std::vector<std::string> races;
  ExpectRaces* expected = nullptr;
  uint64_t accesses = 0;
};

Shadow& TheShadow() {
  static Shadow shadow;
  return shadow;
}

// Of this thread of the host's: what others call meanwhile of functions that kernels call, too, is
// no access of theirs. What no kernel does costs next to nothing.
thread_local ThreadProgress* running = nullptr;

bool IsShared(uintptr_t at) {
  return at >= reinterpret_cast<uintptr_t>(__data_start) && at < reinterpret_cast<uintptr_t>(_end);
}

bool IsConstant(uintptr_t at) {
  return at >= reinterpret_cast<uintptr_t>(__executable_start) &&
         at < reinterpret_cast<uintptr_t>(__data_start);
}

uint32_t MomentOfRunning(Shadow& shadow) {
  ThreadProgress& thread = *running;
  if (thread.moment == 0) {
    thread.moment = static_cast<uint32_t>(shadow.moments.size());
    shadow.moments.push_back({thread.block, thread.thread, thread.barriers, thread.warp_barriers});
  }
  return thread.moment;
}

bool Ordered(const Moment& before, const Moment& now) {
  if (before.block != now.block) return false;
  if (before.thread == now.thread || before.barriers < now.barriers) return true;
  return before.thread / kLanes == now.thread / kLanes && before.warp_barriers < now.warp_barriers;
}

// Puts `mine` among two marks, so that whoever races with any access so far does with one of them:
// two blocks, or else two warps after the newest barrier, or else two lanes after the newest
// barrier of their warp.
void Keep(const std::vector<Moment>& moments, Mark mine, std::array<Mark, 2>& kept) {
  auto& [a, b] = kept;
  const Moment& now = moments[mine.moment];
  const auto by_same = [&](const Mark& mark) {
    const Moment& other = moments[mark.moment];
    return other.block == now.block && other.thread == now.thread;
  };
  if (a.moment == 0 || by_same(a)) return void(a = mine);
  if (b.moment == 0 || by_same(b)) return void(b = mine);
  const Moment& first = moments[a.moment];
  const Moment& second = moments[b.moment];
  if (first.block != second.block) return;
  if (first.block != now.block) return void(b = mine);
  if (first.barriers < now.barriers) return void(a = mine);
  if (second.barriers < now.barriers) return void(b = mine);
  if (first.thread / kLanes != second.thread / kLanes) return;
  if (first.thread / kLanes != now.thread / kLanes) return void(b = mine);
  if (first.warp_barriers < now.warp_barriers) return void(a = mine);
  if (second.warp_barriers < now.warp_barriers) return void(b = mine);
}

Line& LineOf(Shadow& shadow, uintptr_t at) {
  const uintptr_t key = at / kLineBytes;
  auto& [recent_key, recent] = shadow.recent[key % shadow.recent.size()];
  if (recent != nullptr && recent_key == key) return *recent;
  Line*& line = shadow.line_of[key];
  if (line == nullptr) {
    if (shadow.used == shadow.lines.size()) shadow.lines.emplace_back();
    line = &shadow.lines[shadow.used++];
    line->piece = 0;
    const auto forbidden = shadow.end_in.find(key);
    line->end = forbidden == shadow.end_in.end() ? UINTPTR_MAX : forbidden->second;
  }
  recent_key = key;
  recent = line;
  return *line;
}

// Makes its pieces no larger than `piece`.
void Split(Line& line, uintptr_t piece) {
  if (line.piece == 0) {
    line.cells.assign(kLineBytes / piece, Cell{});
  } else {
    line.cells.resize(kLineBytes / piece);
    const uintptr_t parts = line.piece / piece;
    for (uintptr_t i = line.cells.size(); i-- > 0;) line.cells[i] = line.cells[i / parts];
  }
  line.piece = piece;
}

const char* Past(Access access) {
  return access == Access::kRead    ? "read"
         : access == Access::kWrite ? "written"
                                    : "changed by an atomic";
}

std::string PlaceOf(const Shadow& shadow, uintptr_t at, bool shared) {
  if (shared) return NameOf(at);
  const KernelCall::Pointer* nearest = nullptr;
  for (const KernelCall::Pointer& pointer : shadow.call.pointers) {
    if (pointer.to <= at && (nearest == nullptr || nearest->to < pointer.to)) nearest = &pointer;
  }
  if (nearest == nullptr) return fmt::format("the address {:#x}", at);
  return fmt::format("byte {} behind a pointer of parameter {}", at - nearest->to,
                     nearest->parameter);
}

void Tell(Shadow& shadow, uintptr_t at, bool shared, Mark before, Access was, Mark mine,
          Access is) {
  if (!shadow.told.insert(std::minmax(before.code, mine.code)).second) return;
  const Moment& first = shadow.moments[before.moment];
  const Moment& second = shadow.moments[mine.moment];
  const auto place = [](uint32_t code) {
    return LineOfCode(reinterpret_cast<uintptr_t>(__executable_start) + code);
  };
  shadow.races.push_back(fmt::format(
      "race in {}: {} was {} by thread {} of block {} ({}), then {} by thread {} of block {} ({})",
      NameOf(reinterpret_cast<uintptr_t>(shadow.call.function)), PlaceOf(shadow, at, shared),
      Past(was), first.thread, first.block, place(before.code), Past(is), second.thread,
      second.block, place(mine.code)));
}

void TellOfEnd(Shadow& shadow, uintptr_t at, Access access, Mark mine) {
  if (!shadow.told.insert({0, mine.code}).second) return;
  const Moment& now = shadow.moments[mine.moment];
  shadow.races.push_back(
      fmt::format("behind the end in {}: {} was {} by thread {} of block {} ({})",
                  NameOf(reinterpret_cast<uintptr_t>(shadow.call.function)),
                  PlaceOf(shadow, at, false), Past(access), now.thread, now.block,
                  LineOfCode(reinterpret_cast<uintptr_t>(__executable_start) + mine.code)));
}

// One access to one piece.
void Touch(Shadow& shadow, uintptr_t at, bool shared, Cell& cell, Access access, Mark mine) {
  const Moment& now = shadow.moments[mine.moment];
  const auto compare = [&](const Mark& before, Access was) {
    if (before.moment == 0 || Ordered(shadow.moments[before.moment], now)) return;
    Tell(shadow, at, shared, before, was, mine, access);
  };
  compare(cell.writer, Access::kWrite);
  if (access != Access::kAtomic) {
    for (const Mark& before : cell.atomics) compare(before, Access::kAtomic);
  }
  if (access != Access::kRead) {
    for (const Mark& before : cell.readers) compare(before, Access::kRead);
  }
  if (access == Access::kWrite) {
    cell.writer = mine;
  } else {
    Keep(shadow.moments, mine, access == Access::kRead ? cell.readers : cell.atomics);
  }
}

void Note(const void* pointer, size_t bytes, Access access, const void* code) {
  Shadow& shadow = TheShadow();
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  if (begin >= running->stack_begin && begin < running->stack_end) return;
  if (IsConstant(begin)) return;
  ++shadow.accesses;
  const bool shared = IsShared(begin);
  const Mark mine = {MomentOfRunning(shadow),
                     static_cast<uint32_t>(reinterpret_cast<uintptr_t>(code) -
                                           reinterpret_cast<uintptr_t>(__executable_start))};
  const uintptr_t alignment = (begin | bytes | kWidest) & ~((begin | bytes | kWidest) - 1);
  for (uintptr_t at = begin; at < begin + bytes;) {
    Line& line = LineOf(shadow, at);
    if (shared && line.block != running->block) line.piece = 0;
    line.block = running->block;
    if (line.piece == 0 || line.piece > alignment) Split(line, alignment);
    const uintptr_t end = std::min(begin + bytes, (at / kLineBytes + 1) * kLineBytes);
    if (end > line.end) TellOfEnd(shadow, std::max(at, line.end), access, mine);
    for (; at < end; at += line.piece) {
      Touch(shadow, at, shared, line.cells[at % kLineBytes / line.piece], access, mine);
    }
  }
}

}  // namespace

void BeginRaceCheck(const KernelCall& call) {
  Shadow& shadow = TheShadow();
  shadow.call = call;
  shadow.moments.assign(1, {});
  shadow.used = 0;
  shadow.line_of = {};  // not cleared: that takes as long as the largest launch
  shadow.recent = {};
  shadow.told.clear();
}

void SetRunningThread(ThreadProgress* thread) { running = thread; }

void ForbidFrom(const void* end) {
  const auto at = reinterpret_cast<uintptr_t>(end);
  TheShadow().end_in[at / kLineBytes] = at;
}

void AllowFrom(const void* end) {
  TheShadow().end_in.erase(reinterpret_cast<uintptr_t>(end) / kLineBytes);
}

void NoteAtomic(const void* at, size_t bytes) {
  if (running != nullptr) Note(at, bytes, Access::kAtomic, __builtin_return_address(0));
}

void EndRaceCheck() {
  Shadow& shadow = TheShadow();
  std::vector<std::string> races = std::exchange(shadow.races, {});
  if (races.empty()) return;
  if (shadow.expected != nullptr) {
    std::vector<std::string>& lines = shadow.expected->lines_;
    lines.insert(lines.end(), races.begin(), races.end());
    return;
  }
  for (const std::string& race : races) std::fprintf(stderr, "emulation: %s\n", race.c_str());
  std::abort();
}

ExpectRaces::ExpectRaces() { TheShadow().expected = this; }
ExpectRaces::~ExpectRaces() { TheShadow().expected = nullptr; }

uint64_t CheckedAccesses() { return TheShadow().accesses; }

}  // namespace ringmaster::testing

// What -fsanitize=thread calls before each access.

namespace {

using ringmaster::testing::Access;
using ringmaster::testing::Note;
using ringmaster::testing::running;

}  // namespace

#define RING_ACCESS(name, bytes, access)                                                  \
  extern "C" void __tsan_##name(const void* at);                                          \
  extern "C" void __tsan_##name(const void* at) {                                         \
    if (running != nullptr) Note(at, bytes, Access::access, __builtin_return_address(0)); \
  }
#define RING_ACCESSES(bytes)                       \
  RING_ACCESS(read##bytes, bytes, kRead)           \
  RING_ACCESS(write##bytes, bytes, kWrite)         \
  RING_ACCESS(unaligned_read##bytes, bytes, kRead) \
  RING_ACCESS(unaligned_write##bytes, bytes, kWrite)
RING_ACCESSES(1)
RING_ACCESSES(2)
RING_ACCESSES(4)
RING_ACCESSES(8)
RING_ACCESSES(16)
#undef RING_ACCESSES
#undef RING_ACCESS

extern "C" {
void __tsan_read_range(const void* at, size_t bytes);
void __tsan_write_range(const void* at, size_t bytes);
void __tsan_vptr_update(void** at, void* value);
void __tsan_vptr_read(void** at);
uint8_t __tsan_atomic8_load(const volatile uint8_t* at, int order);
void __tsan_init();

void __tsan_read_range(const void* at, size_t bytes) {
  if (running != nullptr) Note(at, bytes, Access::kRead, __builtin_return_address(0));
}
void __tsan_write_range(const void* at, size_t bytes) {
  if (running != nullptr) Note(at, bytes, Access::kWrite, __builtin_return_address(0));
}
void __tsan_vptr_update(void**, void*) {}  // kernels have no virtual functions
void __tsan_vptr_read(void**) {}
// Whether a shared array, a static one here, was made.
uint8_t __tsan_atomic8_load(const volatile uint8_t* at, int) { return *at; }
void __tsan_init() {}
}
