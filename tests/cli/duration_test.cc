#include "cli/duration.h"

#include <catch2/catch.hpp>

namespace ringmaster::cli {
namespace {

using namespace std::chrono_literals;

TEST_CASE("Duration: a number and a unit") {
  CHECK(*ParseDuration("90s", "--timeout") == 90s);
  CHECK(*ParseDuration("10m", "--timeout") == 10min);
  CHECK(*ParseDuration("1h", "--timeout") == 1h);
  CHECK(*ParseDuration("1.5h", "--timeout") == 90min);
  CHECK(*ParseDuration("250ms", "--timeout") == 250ms);
}

TEST_CASE("Duration: anything else names the flag and shows how") {
  for (const char* text :
       {"", "10", "m", "-5s", "0s", "5d", "1h30m", "5 s", "1e3s", "nan", "inf", "99999h"}) {
    INFO(text);
    const auto duration = ParseDuration(text, "--timeout");
    REQUIRE(duration.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(Message(duration.status()).find("--timeout") == 0);
  }
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
