#include "common/log.h"

#include <spdlog/cfg/helpers.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <cstdlib>

namespace ringmaster {

void InitializeLog(const std::string& program) {
  auto logger = spdlog::stderr_logger_mt(program);
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %n %l %v");
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(logger);
  if (const char* level = std::getenv("RINGMASTER_LOG")) spdlog::cfg::helpers::load_levels(level);
}

}  // namespace ringmaster
