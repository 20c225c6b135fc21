// What the default logger says while this lives. Main thread.
#pragma once

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>

namespace ringmaster::testing {

class LogLines {
 public:
  LogLines() { spdlog::default_logger()->sinks().push_back(sink_); }
  ~LogLines() { spdlog::default_logger()->sinks().pop_back(); }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  [[nodiscard]] std::string text() const { return stream_.str(); }
  [[nodiscard]] auto count() const {
    const std::string said = text();
    return std::count(said.begin(), said.end(), '\n');
  }

 private:
  std::ostringstream stream_;
  const std::shared_ptr<spdlog::sinks::sink> sink_ =
      std::make_shared<spdlog::sinks::ostream_sink_mt>(stream_);
};

}  // namespace ringmaster::testing
