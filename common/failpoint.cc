#include "common/failpoint.h"

#include <fcntl.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/files.h"
#include "common/mutex.h"

namespace ringmaster {
namespace {

// What `exit` ends with: EX_SOFTWARE of sysexits.h.
constexpr int kExitCode = 70;
constexpr uint64_t kMaxMilliseconds = 3'600'000;

enum class What : uint8_t { kKill, kStop, kDelay, kHold, kExit, kFlip };

struct Entry {
  std::string text;
  std::string name;
  uint64_t first_step = 0;
  uint64_t last_step = std::numeric_limits<uint64_t>::max();
  What what = What::kKill;
  uint64_t milliseconds = 0;  // 0 of kStop: until somebody else sends SIGCONT
  std::string flipped;        // of kFlip: a part of what the point has
  std::string token;
  std::string gate;  // a file without which it does not act; "": none
};

Mutex mu;
// What is armed now is the last; earlier ones stay, because a thread may still read them.
std::vector<std::unique_ptr<const std::vector<Entry>>> lists ABSL_GUARDED_BY(mu);
std::atomic<const std::vector<Entry>*> current = nullptr;

Status Bad(const Entry& entry, const std::string& why) {
  return InvalidArgument(
      "{}: entry `{}`: {}; expected "
      "NAME[@STEP|@FIRST-LAST]=kill|stop[:MS]|delay:MS|hold:MS|exit|flip:PART[!TOKEN][?GATE], "
      "entries separated by `;`",
      kFailpointVariable, entry.text, why);
}

bool ReadNumber(std::string_view text, uint64_t* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

// Cuts `text` before the first `mark`; what is behind it, or nothing.
std::string_view CutAt(std::string_view* text, char mark) {
  const size_t place = text->find(mark);
  if (place == std::string_view::npos) return {};
  const std::string_view rest = text->substr(place + 1);
  *text = text->substr(0, place);
  return rest;
}

Status ReadSteps(std::string_view steps, Entry* entry) {
  std::string_view first = steps;
  const std::string_view last = CutAt(&first, '-');
  if (!ReadNumber(first, &entry->first_step) ||
      (first.size() != steps.size() && !ReadNumber(last, &entry->last_step))) {
    return Bad(*entry, "a step is a number, or FIRST-LAST");
  }
  if (first.size() == steps.size()) entry->last_step = entry->first_step;
  if (entry->last_step < entry->first_step) return Bad(*entry, "its last step is before its first");
  return absl::OkStatus();
}

Status ReadAction(std::string_view action, Entry* entry) {
  const bool timed = action.find(':') != std::string_view::npos;
  const std::string_view milliseconds = CutAt(&action, ':');
  if (action == "flip") {
    entry->what = What::kFlip;
    entry->flipped = milliseconds;
    if (!entry->flipped.empty()) return absl::OkStatus();
    return Bad(*entry, "flip needs the name of a part behind `:`");
  }
  if (action == "kill" && !timed) {
    entry->what = What::kKill;
  } else if (action == "exit" && !timed) {
    entry->what = What::kExit;
  } else if (action == "stop") {
    entry->what = What::kStop;
  } else if (action == "delay" && timed) {
    entry->what = What::kDelay;
  } else if (action == "hold" && timed) {
    entry->what = What::kHold;
  } else {
    return Bad(*entry, "it has no action of the six");
  }
  if (timed && (!ReadNumber(milliseconds, &entry->milliseconds) || entry->milliseconds == 0 ||
                entry->milliseconds > kMaxMilliseconds)) {
    return Bad(*entry, fmt::format("milliseconds are from 1 to {}", kMaxMilliseconds));
  }
  return absl::OkStatus();
}

StatusOr<Entry> ReadEntry(std::string_view text) {
  Entry entry;
  entry.text = text;
  std::string_view place = text;
  if (text.find('=') == std::string_view::npos) return Bad(entry, "it has no `=`");
  std::string_view action = CutAt(&place, '=');
  const bool gated = action.find('?') != std::string_view::npos;
  entry.gate = CutAt(&action, '?');
  if (gated && entry.gate.empty()) return Bad(entry, "no path of a gate behind `?`");
  const bool once = action.find('!') != std::string_view::npos;
  entry.token = CutAt(&action, '!');
  if (once && entry.token.empty()) return Bad(entry, "no path of a token behind `!`");
  const bool stepped = place.find('@') != std::string_view::npos;
  const std::string_view steps = CutAt(&place, '@');
  if (place.empty()) return Bad(entry, "it has no name");
  entry.name = place;
  if (stepped) RING_RETURN_IF_ERROR(ReadSteps(steps, &entry));
  RING_RETURN_IF_ERROR(ReadAction(action, &entry));
  if (entry.what == What::kHold && !gated) return Bad(entry, "hold needs a gate behind `?`");
  return entry;
}

// True when this process is the one that created the token, which then says who it was.
bool TakeToken(const Entry& entry, uint64_t step) {
  if (entry.token.empty()) return true;
  const OwnedFile file(open(entry.token.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file.valid()) {
    if (errno != EEXIST) {
      spdlog::error("failpoint {}: cannot create its token: {}", entry.text, strerror(errno));
    }
    return false;
  }
  if (!WriteAll(file.get(), fmt::format("{} {} {}\n", entry.name, step, getpid()))) {
    spdlog::error("failpoint {}: cannot write its token: {}", entry.text, strerror(errno));
  }
  return true;
}

// A child that sends SIGCONT later. It holds none of our files, so that our connections end when we
// do, and ends with us.
pid_t ForkWaker(uint64_t milliseconds) {
  const pid_t self = getpid();
  const pid_t child = _Fork();
  if (child != 0) return child;
  close_range(0, ~0U, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // the thread that forked waits, so it ends with the process
  timespec left = {.tv_sec = static_cast<time_t>(milliseconds / 1000),
                   .tv_nsec = static_cast<long>(milliseconds % 1000 * 1'000'000)};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
  if (getppid() == self) kill(self, SIGCONT);
  _exit(0);
}

bool GateIsThere(const Entry& entry) {
  return entry.gate.empty() || access(entry.gate.c_str(), F_OK) == 0;
}

// To its end, until its gate goes, or until it is over.
void Delay(const Entry& entry, const std::function<bool()>& over) {
  using std::chrono::milliseconds;
  const auto end = std::chrono::steady_clock::now() + milliseconds(entry.milliseconds);
  if (entry.gate.empty()) return std::this_thread::sleep_until(end);
  while (GateIsThere(entry) && std::chrono::steady_clock::now() < end) {
    if (over && over()) return;
    std::this_thread::sleep_for(milliseconds(2));
  }
}

void StandStill(const Entry& entry) {
  const pid_t waker = entry.milliseconds > 0 ? ForkWaker(entry.milliseconds) : 0;
  if (waker < 0) {
    spdlog::error("failpoint {}: cannot fork: {}", entry.text, strerror(errno));
    return;
  }
  kill(getpid(), SIGSTOP);
  while (waker > 0 && waitpid(waker, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Act(const Entry& entry, uint64_t step, const std::function<bool()>& over) {
  spdlog::warn("failpoint hit: {} at step {}", entry.text, step);
  switch (entry.what) {
    case What::kKill:
      kill(getpid(), SIGKILL);
      while (true) pause();  // another thread may be the one that the signal ends first
    case What::kStop:
      StandStill(entry);
      return;
    case What::kDelay:
      Delay(entry, nullptr);
      return;
    case What::kHold:
      Delay(entry, over);
      return;
    case What::kExit:
      _exit(kExitCode);
    case What::kFlip:
      return;  // Flip's
  }
}

bool Matches(const Entry& entry, const char* name, uint64_t step) {
  return entry.name == name && step >= entry.first_step && step <= entry.last_step &&
         GateIsThere(entry);
}

}  // namespace

namespace failpoint_internal {

std::atomic<bool> armed = false;

void Hit(const char* name, uint64_t step, const std::function<bool()>& over) {
  const std::vector<Entry>* const list = current.load(std::memory_order_acquire);
  if (list == nullptr) return;
  for (const Entry& entry : *list) {
    if (!Matches(entry, name, step) || entry.what == What::kFlip) continue;
    if (TakeToken(entry, step)) Act(entry, step, over);
  }
}

std::string Flip(const char* name, uint64_t step) {
  const std::vector<Entry>* const list = current.load(std::memory_order_acquire);
  if (list == nullptr) return {};
  for (const Entry& entry : *list) {
    if (!Matches(entry, name, step) || entry.what != What::kFlip) continue;
    if (!TakeToken(entry, step)) continue;
    spdlog::warn("failpoint hit: {} at step {}", entry.text, step);
    return entry.flipped;
  }
  return {};
}

}  // namespace failpoint_internal

Status ArmFailpoints(const char* text) {
  auto list = std::make_unique<std::vector<Entry>>();
  std::string_view rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    std::string_view entry = rest;
    rest = CutAt(&entry, ';');
    if (entry.empty()) continue;
    RING_ASSIGN_OR_RETURN(list->emplace_back(), ReadEntry(entry));
  }
  for (const Entry& entry : *list) spdlog::warn("failpoint armed: {}", entry.text);
  MutexLock lock(mu);
  failpoint_internal::armed.store(!list->empty(), std::memory_order_relaxed);
  current.store(list.get(), std::memory_order_release);
  lists.push_back(std::move(list));
  return absl::OkStatus();
}

}  // namespace ringmaster
