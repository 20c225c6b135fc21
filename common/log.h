// Logging of the daemons: one line a state change on stderr, ids as key=value. Every line is made
// one (common/text.h) before any sink sees it, whatever peers put into it. Thread-safe.
#pragma once

#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace ringmaster {

// Sets up spdlog's default logger for this process; `program` and `name` stand in every line.
// The level comes from RINGMASTER_LOG (trace, debug, info, warn, error), default info.
void InitializeLog(const std::string& program);

// The logger of which that makes the default one.
[[nodiscard]] std::shared_ptr<spdlog::logger> MakeLogger(const std::string& program,
                                                         spdlog::sink_ptr sink);

// Lines that strangers can cause at will: one every 10 s, with how many there were meanwhile. A
// value; thread-compatible.
class SeldomLine {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kInterval{10};

  // What is to be logged now; nullopt: nothing.
  [[nodiscard]] std::optional<std::string> Next(const std::string& what, Time now);

 private:
  std::optional<Time> said_;
  uint64_t unsaid_ = 0;
};

}  // namespace ringmaster
