#include "common/log.h"

#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
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

TEST_CASE("Log: what strangers can cause at will is one line in 10 s, with how many there were") {
  SeldomLine lines;
  SeldomLine::Time now;  // also when the host has just started
  CHECK(lines.Next("refused: a", now) == std::optional<std::string>("refused: a"));
  for (int i = 0; i < 199; ++i) CHECK_FALSE(lines.Next("refused: b", now));
  now += SeldomLine::kInterval - std::chrono::milliseconds(1);
  CHECK_FALSE(lines.Next("refused: c", now));
  now += std::chrono::milliseconds(1);
  CHECK(lines.Next("refused: d", now) ==
        std::optional<std::string>("refused: d (and 200 like it before)"));
  now += SeldomLine::kInterval;
  CHECK(lines.Next("refused: e", now) == std::optional<std::string>("refused: e"));
}

}  // namespace
}  // namespace ringmaster
