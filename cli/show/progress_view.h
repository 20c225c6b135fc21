// How a job is watched: as lines, as a screen, or as JSON.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "cli/command_line.h"
#include "cli/show/epoch.h"
#include "cli/show/terminal.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::cli {

// How a job's progress is shown while it is followed: a repainted block on a terminal, lines away
// from it, objects with -o json. Each view returns what is to be written and writes nothing itself.
// Main thread only.

// When something is shown, and how wide the terminal is then.
struct Moment {
  std::chrono::steady_clock::time_point steady;
  int64_t unix_ms = 0;
  size_t columns = 80;
};

class ProgressView {
 public:
  virtual ~ProgressView() = default;
  [[nodiscard]] virtual std::string Update(const v1::JobStatus& status, const Moment& moment) = 0;
  // Time has passed: several times a second.
  [[nodiscard]] virtual std::string Tick(const Moment& moment) = 0;
  // Nothing will be shown any more, also when the job goes on.
  [[nodiscard]] virtual std::string End(const Moment& moment) = 0;
};

[[nodiscard]] std::unique_ptr<ProgressView> MakeProgressView(Output output,
                                                             const Terminal& terminal);

// Progress as lines: one at each change of state, for each phase of the start that ended, at the
// end of each epoch, and one every 10 s. Main thread only.
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

// Progress on a terminal: what is over stays as lines, what is under way is a block below them that
// is repainted four times a second at most. Main thread only.
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
