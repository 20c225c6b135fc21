#include "common/log.h"

#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <sstream>

#include "common/text.h"

namespace ringmaster {
namespace {

TEST_CASE("Log: whatever a peer says is one line of bounded length, in every sink") {
  std::ostringstream first, second;
  const auto logger = MakeLogger("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(first));
  logger->sinks().push_back(std::make_shared<spdlog::sinks::ostream_sink_mt>(second));
  logger->info("closed: {}",
               "a\n2026-01-01T00:00:00.000 test info forged\r\x1b[2J\xc2\x9b"
               "0m");
  logger->info("{}", std::string(4 << 20, 'x') + "\n");
  for (const std::string& text : {first.str(), second.str()}) {
    CHECK(std::count(text.begin(), text.end(), '\n') == 2);
    CHECK(text.find("a\\n2026-01-01T00:00:00.000 test info forged\\r\\x1b[2J\\x9b"
                    "0m\n") != std::string::npos);
    CHECK(text.size() < kMaxLogText + 300);
    CHECK(text.find('\x1b') == std::string::npos);
  }
}

}  // namespace
}  // namespace ringmaster
