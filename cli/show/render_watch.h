// What `watch` shows of a job: lines for a terminal, which the caller cuts to its width, and lines
// for everything else. Values in, text out; thread-safe (free functions).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/show/epoch.h"
#include "cli/show/terminal.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::cli {

// Whether what there is to see are the phases of its start.
[[nodiscard]] bool IsStarting(const v1::JobStatus& status);

// The lines that change while a job is in its present state, on a terminal of `columns`; the time
// tells whether it stands still.
[[nodiscard]] std::vector<std::string> LiveLines(const v1::JobStatus& status, size_t columns,
                                                 int64_t now_unix_ms, const Terminal& terminal);
// `Epoch 1/3` and its full bar with the totals.
[[nodiscard]] std::vector<std::string> EndedLines(const EndedEpoch& epoch, size_t columns,
                                                  const Terminal& terminal);
// `started in 3.4s: data_check 40ms, bind 3.1s`; empty when no phases are known.
[[nodiscard]] std::string StartedLine(const v1::JobStatus& status);

// `RUNNING  epoch 2/3  step 120/282  43%  512 samples/s  loss 1.2346  accuracy 0.5510  ETA 1m20s`:
// the state of a job in one line, only with what is known.
[[nodiscard]] std::string ProgressLine(const v1::JobStatus& status, const Terminal& terminal);
// `epoch 1/3  94/94 steps  loss 1.2346  accuracy 0.5510  test accuracy 0.5600`.
[[nodiscard]] std::string EndedLine(const EndedEpoch& epoch);
// `bind 3.1s on worker-2`.
[[nodiscard]] std::string PhaseText(const v1::StartPhase& phase);

}  // namespace ringmaster::cli
