// Live progress of one job on stdout: a line that is repainted on a terminal, a line every few
// seconds elsewhere, one JSON object a line with -o json. Main thread only.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "cli/command_line.h"
#include "cli/terminal.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::cli {

class ProgressDisplay {
 public:
  using Clock = std::chrono::steady_clock;

  ProgressDisplay(Output output, Terminal terminal) : output_(output), terminal_(terminal) {}
  // Ends a line that was being repainted.
  ~ProgressDisplay();
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  // What to write for this status now; empty when it is too early for another line. A new state
  // is never too early. Json is never held back.
  [[nodiscard]] std::string Update(const v1::JobStatus& status, Clock::time_point now);
  // The same, to stdout.
  void Show(const v1::JobStatus& status);

 private:
  const Output output_;
  const Terminal terminal_;
  std::optional<v1::JobState> state_;  // as last written
  Clock::time_point written_;
  bool line_open_ = false;
};

}  // namespace ringmaster::cli
