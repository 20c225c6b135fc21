#include "common/duration.h"

#include <catch2/catch.hpp>

namespace ringmaster::cli {
namespace {

using namespace std::chrono_literals;

TEST_CASE("Duration: numbers and units") {
  CHECK(*ParseDuration("90s", "--timeout") == 90s);
  CHECK(*ParseDuration("10m", "--timeout") == 10min);
  CHECK(*ParseDuration("1h", "--timeout") == 1h);
  CHECK(*ParseDuration("1.5h", "--timeout") == 90min);
  CHECK(*ParseDuration("1h30m", "--timeout") == 90min);
  CHECK(*ParseDuration("250ms", "--timeout") == 250ms);
}

TEST_CASE("Duration: anything else names the flag and shows how") {
  for (const char* text : {"", "10", "m", "-5s", "0", "0s", "5d", "5 s", "1e3s", "nan", "inf",
                           "-inf", "99999h", "1us", "1.0005s"}) {
    INFO(text);
    const auto duration = ParseDuration(text, "--timeout");
    REQUIRE(duration.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(Message(duration.status()) ==
          std::string("--timeout ") + text +
              ": expected a time from 1ms to 365 days, with its unit: 500ms, 90s, 10m, 1h");
  }
}

TEST_CASE("Duration: a range is kept, and nothing at all is a time where it begins with 0") {
  constexpr DurationRange kRange{0ms, 24h};
  CHECK(*ParseDuration("0", "--drain", kRange) == 0ms);
  CHECK(*ParseDuration("24h", "--drain", kRange) == 24h);
  CHECK(Message(ParseDuration("25h", "--drain", kRange).status()) ==
        "--drain 25h: expected a time from 0 to 24h, with its unit: 500ms, 90s, 10m, 1h");
}

TEST_CASE("Duration: an exact one is read again") {
  for (const std::chrono::milliseconds duration : {0ms, 500ms, 3000ms, 90'000ms, 5'400'000ms}) {
    CHECK(*ParseDuration(ExactDuration(duration), "again", {0ms}) == duration);
  }
  CHECK(ExactDuration(500ms) == "500ms");
  CHECK(ExactDuration(30s) == "30s");
}

TEST_CASE("Duration: printed with two units at most") {
  CHECK(FormatDuration(0s) == "0s");
  CHECK(FormatDuration(-3s) == "0s");
  CHECK(FormatDuration(59s) == "59s");
  CHECK(FormatDuration(125s) == "2m05s");
  CHECK(FormatDuration(3h + 7min + 59s) == "3h07m");
  CHECK(FormatDuration(52h) == "2d04h");
}

}  // namespace
}  // namespace ringmaster::cli
