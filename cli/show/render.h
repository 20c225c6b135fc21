// What -o table prints. Values in, text out; thread-safe (free functions).
#pragma once

#include <string>

#include "cli/show/terminal.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::cli {

// One job as `key: value` lines, the phases of its start and its workers as tables below, and why
// it failed.
[[nodiscard]] std::string RenderStatus(const v1::JobStatus& status, const Terminal& terminal);
// What is left to say of a job that was watched to its end: checkpoints, or why it failed.
[[nodiscard]] std::string RenderEnd(const v1::JobStatus& status, const Terminal& terminal);

// One line a job, the reason last.
[[nodiscard]] std::string RenderJobs(const v1::ListResponse& jobs, const Terminal& terminal);
[[nodiscard]] std::string RenderWorkers(const v1::ListWorkersResponse& workers,
                                        const Terminal& terminal);
[[nodiscard]] std::string RenderCheckpoints(const v1::ListCheckpointsResponse& checkpoints,
                                            const Terminal& terminal);
// `ok`, or what differs.
[[nodiscard]] std::string RenderChecked(const v1::VerifyCheckpointsResponse& checked,
                                        const Terminal& terminal);

[[nodiscard]] std::string RenderWhy(const v1::WhyResponse& why, const Terminal& terminal);
// `worker:`, `host:`, `step:`, `phase:`, `what to do:`, each where it is known.
[[nodiscard]] std::string RenderFailure(const v1::Failure& failure);

[[nodiscard]] std::string RenderEvents(const v1::ListEventsResponse& events,
                                       const Terminal& terminal);
// `TIME WORKER LEVEL text`, after `... N lines lost ...` where lines were.
[[nodiscard]] std::string RenderLogLine(const v1::LogLine& line, const Terminal& terminal);

}  // namespace ringmaster::cli
