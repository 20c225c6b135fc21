// Progress as lines: one at each change of state, for each phase of the start that ended, at the
// end of each epoch, and one every 10 s. Main thread only.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "cli/epoch.h"
#include "cli/progress_view.h"

namespace ringmaster::cli {

class LineProgress final : public ProgressView {
 public:
  explicit LineProgress(const Terminal& terminal) : terminal_(terminal) {}
  std::string Update(const v1::JobStatus& status, const Moment& moment) override;
  std::string Tick(const Moment& moment) override;
  std::string End(const Moment&) override { return ""; }

 private:
  std::string NewPhases(const v1::JobStatus& status);

  const Terminal terminal_;
  EpochTracker epochs_;
  std::optional<v1::JobStatus> newest_;
  std::set<std::string> phases_;  // that ended and were told
  std::chrono::steady_clock::time_point written_;
};

}  // namespace ringmaster::cli
