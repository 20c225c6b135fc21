// How a job's progress is shown while it is followed: a repainted block on a terminal, lines away
// from it, objects with -o json. Each view returns what is to be written and writes nothing itself.
// Main thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "cli/command_line.h"
#include "cli/terminal.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::cli {

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

}  // namespace ringmaster::cli
