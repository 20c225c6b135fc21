// Logging of the daemons: one line a state change on stderr, ids as key=value. Every line is made
// one (common/text.h) before any sink sees it, whatever peers put into it. Thread-safe.
#pragma once

#include <spdlog/spdlog.h>

#include <memory>
#include <string>

namespace ringmaster {

// The level of a line that a worker ships behind its last one of a job (SpooledLine).
inline constexpr char kEndLevel[] = "end";

// Sets up spdlog's default logger for this process; `program` and `name` stand in every line.
// The level comes from RINGMASTER_LOG (trace, debug, info, warn, error), default info.
void InitializeLog(const std::string& program);

// The logger of which that makes the default one.
[[nodiscard]] std::shared_ptr<spdlog::logger> MakeLogger(const std::string& program,
                                                         spdlog::sink_ptr sink);

}  // namespace ringmaster
