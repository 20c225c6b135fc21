// Progress on a terminal: what is over stays as lines, what is under way is a block below them that
// is repainted four times a second at most. Main thread only.
#pragma once

#include <optional>
#include <string>

#include "cli/epoch.h"
#include "cli/live_block.h"
#include "cli/progress_view.h"

namespace ringmaster::cli {

class ScreenProgress final : public ProgressView {
 public:
  explicit ScreenProgress(const Terminal& terminal) : terminal_(terminal) {}
  std::string Update(const v1::JobStatus& status, const Moment& moment) override;
  std::string Tick(const Moment& moment) override;
  std::string End(const Moment& moment) override;

 private:
  [[nodiscard]] std::vector<std::string> Over(const v1::JobStatus& status, size_t columns);

  const Terminal terminal_;
  EpochTracker epochs_;
  LiveBlock block_;
  std::optional<v1::JobStatus> newest_;
  bool was_starting_ = false;
  std::chrono::steady_clock::time_point painted_;
};

}  // namespace ringmaster::cli
