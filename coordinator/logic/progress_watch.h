// Whether a member's computation hangs although its process lives: its progress counter stands
// still, in a phase that waits for nobody, for much longer than it ever did in that phase. Owned by
// Member, loop thread only. Waiting for data accuses nobody: in phases that wait for other workers
// nothing is measured.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "coordinator/logic/event.h"

namespace ringmaster::coordinator {

class ProgressWatch {
 public:
  static constexpr std::chrono::milliseconds kLeast{5'000};
  static constexpr int kFactor = 5;
  static constexpr int kEnough = 8;  // gaps that must be known before they count

  // A heartbeat came.
  void Observe(const std::string& phase, uint64_t progress, Now now);
  // What is known of another generation stays, but its last gap has no end.
  void Restart() { since_.reset(); }
  void Excuse(std::chrono::milliseconds late);

  // How long the member has stood still, when that is too long; `otherwise` is the limit while the
  // phase's gaps are not known.
  [[nodiscard]] std::optional<std::chrono::milliseconds> Frozen(std::chrono::milliseconds otherwise,
                                                                Now now) const;
  const std::string& phase() const { return phase_; }

 private:
  struct Gaps {
    std::chrono::milliseconds longest{0};
    int count = 0;
  };
  std::map<std::string, Gaps> gaps_;  // by phase
  std::string phase_;
  uint64_t progress_ = 0;
  std::optional<std::chrono::milliseconds> since_;  // the newest change
};

}  // namespace ringmaster::coordinator
