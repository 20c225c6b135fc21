#include "common/log.h"

#include <spdlog/cfg/helpers.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <cstdlib>
#include <utility>

#include "common/text.h"

namespace ringmaster {
namespace {

class LineLogger : public spdlog::logger {
 public:
  using spdlog::logger::logger;
  std::shared_ptr<spdlog::logger> clone(std::string name) override {
    auto copy = std::make_shared<LineLogger>(*this);
    copy->name_ = std::move(name);
    return copy;
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const std::string line =
        OneLine(std::string(message.payload.data(), message.payload.size()), kMaxLogText);
    spdlog::details::log_msg clean = message;
    clean.payload = spdlog::string_view_t(line.data(), line.size());
    spdlog::logger::sink_it_(clean);
  }
};

}  // namespace

std::shared_ptr<spdlog::logger> MakeLogger(const std::string& program, spdlog::sink_ptr sink) {
  auto logger = std::make_shared<LineLogger>(program, std::move(sink));
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %n %l %v");
  logger->flush_on(spdlog::level::info);
  return logger;
}

void InitializeLog(const std::string& program) {
  spdlog::set_default_logger(
      MakeLogger(program, std::make_shared<spdlog::sinks::stderr_sink_mt>()));
  if (const char* level = std::getenv("RINGMASTER_LOG")) spdlog::cfg::helpers::load_levels(level);
}

}  // namespace ringmaster
