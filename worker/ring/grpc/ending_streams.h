// Streams whose Link or PeerWatch is gone. They say goodbye by themselves, and nobody waits for
// them but the port, when it stops; one that is not over in time is aborted, so that a neighbour
// that stands still holds no memory of ours. Owned by the port and by what it hands out;
// thread-safe.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <string>

#include "common/mutex.h"

namespace ringmaster::ring {

class EndingStreams {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Ending {
    std::string whose;  // for messages
    std::function<bool(TimePoint deadline)> wait_done;
    std::function<void()> abort;
    TimePoint until;  // the moment to abort it
    bool aborted = false;
  };
  // Waits only after Stop, as Stop does.
  void Add(Ending ending);

  // Aborts what is late, and forgets what is over; then waits until there is more to do, `until`,
  // or Stop. False after Stop. "ring-port" thread.
  bool Tend(TimePoint until);
  // Ends Tend, waits for every stream until its moment, and aborts it then.
  void Stop();

 private:
  // What is to be aborted now, and no more of what is over.
  [[nodiscard]] std::deque<Ending> Late(TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  [[nodiscard]] TimePoint Next(TimePoint until) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  Condition changed_;
  std::deque<Ending> endings_ ABSL_GUARDED_BY(mu_);
  bool added_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace ringmaster::ring
