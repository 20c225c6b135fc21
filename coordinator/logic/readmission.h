// When a worker that was evicted from a job, or could not take part in it, may join it again: after
// 1 s, doubled each time up to 5 min. Owned by Run, loop thread only. A new process of the same
// name has a clean record.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "coordinator/logic/event.h"

namespace ringmaster::coordinator {

class Readmission {
 public:
  static constexpr std::chrono::milliseconds kFirst{1'000};
  static constexpr std::chrono::milliseconds kMost{300'000};

  // Bars it from now on; for how long comes back.
  std::chrono::milliseconds Bar(const std::string& worker, const std::string& incarnation, Now now);
  // It may join again from now on; the next bar is longer all the same.
  void Lift(const std::string& worker, Now now);
  [[nodiscard]] bool Barred(const std::string& worker, const std::string& incarnation,
                            Now now) const;
  // Whether a bar ended since the last call.
  [[nodiscard]] bool TakeEnded(Now now);
  void Excuse(std::chrono::milliseconds late);

 private:
  struct Record {
    std::string incarnation;
    std::chrono::milliseconds until{0}, lasts{0};
    bool told = false;
  };
  std::map<std::string, Record> records_;
};

}  // namespace ringmaster::coordinator
