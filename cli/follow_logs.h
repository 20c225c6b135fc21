// Reads a job's log lines, and with `follow` what comes, through restarts of the coordinator: no
// line twice. Thread-compatible.
#pragma once

#include <functional>
#include <string>

#include "cli/client.h"

namespace ringmaster::cli {

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

}  // namespace ringmaster::cli
