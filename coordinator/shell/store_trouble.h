// That the store cannot be written: so that the log says it once, however often it is tried, and
// that it is not tried all the time. A value; thread-compatible.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "common/status.h"

namespace ringmaster::coordinator {

class StoreTrouble {
 public:
  using Time = std::chrono::milliseconds;  // of a steady clock

  // A write failed; true when that is news: the one before had worked, or failed for another
  // reason.
  bool Failed(const Status& status, Time now) {
    if (!since_) since_ = now;
    tried_ = now;
    const std::string before = std::exchange(reason_, Message(status));
    return before != reason_;
  }
  // It is over: how long it lasted.
  Time End(Time now) {
    reason_.clear();
    const std::optional<Time> since = std::exchange(since_, std::nullopt);
    return since ? now - *since : Time(0);
  }

  [[nodiscard]] bool lasts() const { return since_.has_value(); }
  // Whether the newest write that failed was less than `pause` ago.
  [[nodiscard]] bool Recent(Time now, Time pause) const { return lasts() && now - tried_ < pause; }

 private:
  std::optional<Time> since_;
  Time tried_{0};
  std::string reason_;
};

}  // namespace ringmaster::coordinator
