// Following a job to its end, and its log, through restarts of the coordinator; watching it, and
// submitting one to watch.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "cli/client.h"
#include "cli/command_line.h"

namespace ringmaster::cli {

// Following a job to its end, and its log, through restarts of the coordinator.

// Follows a job to its end through restarts of the coordinator. Thread-compatible.
struct FollowOptions {
  // How long to follow at most; for ever when absent.
  std::optional<std::chrono::milliseconds> timeout;
  // How long a coordinator may be away before it counts as unreachable.
  std::chrono::milliseconds patience = std::chrono::seconds(30);
  // Several times a second; false ends it. May be empty.
  Client::OnTick on_tick;
  // A coordinator that had answered went away: once each time. May be empty.
  std::function<void()> on_away;
};

// Hands every status to `on_status` (called on this thread) and returns the last one: of a final
// state, or of any state when the timeout passed. UNAVAILABLE when no coordinator answered for
// `patience`; at the very beginning it is reported at once, because then the address is likely
// wrong. CANCELLED when `on_tick` said so.
[[nodiscard]] StatusOr<v1::JobStatus> Follow(
    Client& client, const std::string& job_id, const FollowOptions& options,
    const std::function<void(const v1::JobStatus&)>& on_status);

// Reads a job's log lines, and with `follow` what comes, through restarts of the coordinator: no
// line twice. Thread-compatible.
struct FollowLogsOptions {
  std::string worker;  // empty: of all
  bool follow = false;
  // How long a coordinator that had answered may be away.
  std::chrono::milliseconds patience = std::chrono::seconds(30);
};

// Hands every line to `on_line` (called on this thread) and returns at the end of the log.
[[nodiscard]] Status FollowLogs(Client& client, const std::string& job_id,
                                const FollowLogsOptions& options,
                                const std::function<void(const v1::LogLine&)>& on_line);

// Watching a job to its end: shared by `watch`, `run` and `submit --watch`. Main thread only.

// Shows progress until the job ended, then its checkpoints, or why it failed; the exit code is the
// job's. Ctrl-C on a terminal ends the watching and says that the job goes on.
[[nodiscard]] StatusOr<ExitCode> WatchJob(Client& client, const std::string& job_id, Output output);

// Submitting a job once, however often the coordinator has to be asked: shared by `submit` and
// `run`. Main thread only.
enum class Then { kReturn, kWatch };

struct Submission {
  v1::SubmitRequest request;  // without idempotency key: one is made; the other job may be `last`
  Then then = Then::kReturn;
};

// The job's id; names of other jobs in the request may be `last`.
[[nodiscard]] StatusOr<std::string> SubmitOnce(Client& client, v1::SubmitRequest request);
// Prints the job's id; with kWatch its progress, and the exit code is the job's.
[[nodiscard]] StatusOr<ExitCode> SubmitJob(const Common& common, const Submission& submission);

}  // namespace ringmaster::cli
