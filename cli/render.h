// What -o table prints. Values in, text out; thread-safe (free functions).
#pragma once

#include <string>

#include "cli/terminal.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::cli {

// One job as `key: value` lines, its workers as a table below.
[[nodiscard]] std::string RenderStatus(const v1::JobStatus& status, const Terminal& terminal);
// One line a job, the reason last.
[[nodiscard]] std::string RenderJobs(const v1::ListResponse& jobs, const Terminal& terminal);
[[nodiscard]] std::string RenderWorkers(const v1::ListWorkersResponse& workers,
                                        const Terminal& terminal);
[[nodiscard]] std::string RenderCheckpoints(const v1::ListCheckpointsResponse& checkpoints,
                                            const Terminal& terminal);
[[nodiscard]] std::string RenderWhy(const v1::WhyResponse& why, const Terminal& terminal);

// `RUNNING  step 120/282  43%  512 samples/s  loss 1.2346  accuracy 55.1%  ETA 1m20s`: the state of
// a job in one line, only with what is known.
[[nodiscard]] std::string ProgressLine(const v1::JobStatus& status, const Terminal& terminal);
// The same with a bar of `width` columns, for a terminal.
[[nodiscard]] std::string ProgressBar(const v1::JobStatus& status, int width,
                                      const Terminal& terminal);

}  // namespace ringmaster::cli
