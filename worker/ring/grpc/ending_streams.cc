#include "worker/ring/grpc/ending_streams.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace ringmaster::ring {
namespace {

// Generations that end within two seconds; more than this are aborted early.
constexpr size_t kMaxEndings = 64;
constexpr std::chrono::seconds kAbortLimit{5};

void Report(const EndingStreams::Ending& ending) {
  spdlog::error("a ring stream did not end after it was aborted: {}", ending.whose);
}

void Finish(const EndingStreams::Ending& ending) {
  if (ending.wait_done(ending.until)) return;
  ending.abort();
  if (!ending.wait_done(std::chrono::steady_clock::now() + kAbortLimit)) Report(ending);
}

}  // namespace

void EndingStreams::Add(Ending ending) {
  if (ending.wait_done(TimePoint())) return;
  {
    MutexLock lock(mu_);
    if (!stopped_) {
      if (endings_.size() >= kMaxEndings) endings_.front().until = TimePoint();
      endings_.push_back(std::move(ending));
      added_ = true;
      changed_.NotifyAll();
      return;
    }
  }
  Finish(ending);
}

std::deque<EndingStreams::Ending> EndingStreams::Late(TimePoint now) {
  std::deque<Ending> late;
  std::erase_if(endings_, [&](Ending& ending) {
    if (ending.wait_done(TimePoint())) return true;
    if (ending.until > now) return false;
    if (std::exchange(ending.aborted, true)) {
      Report(ending);
      return true;
    }
    late.push_back(ending);
    ending.until = now + kAbortLimit;
    return false;
  });
  return late;
}

EndingStreams::TimePoint EndingStreams::Next(TimePoint until) const {
  for (const Ending& ending : endings_) until = std::min(until, ending.until);
  return until;
}

bool EndingStreams::Tend(TimePoint until) {
  std::deque<Ending> late;
  {
    MutexLock lock(mu_);
    late = Late(std::chrono::steady_clock::now());
  }
  for (const Ending& ending : late) ending.abort();
  MutexLock lock(mu_);
  changed_.WaitUntil(mu_, Next(until),
                     [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopped_ || added_; });
  added_ = false;
  return !stopped_;
}

void EndingStreams::Stop() {
  std::deque<Ending> left;
  {
    MutexLock lock(mu_);
    stopped_ = true;
    left.swap(endings_);
    changed_.NotifyAll();
  }
  for (const Ending& ending : left) Finish(ending);
}

}  // namespace ringmaster::ring
