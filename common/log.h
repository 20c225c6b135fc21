// Logging of the daemons: one line a state change on stderr, ids as key=value. Thread-safe.
#pragma once

#include <spdlog/spdlog.h>

#include <string>

namespace ringmaster {

// Sets up spdlog's default logger for this process; `program` and `name` stand in every line.
// The level comes from RINGMASTER_LOG (trace, debug, info, warn, error), default info.
void InitializeLog(const std::string& program);

}  // namespace ringmaster
