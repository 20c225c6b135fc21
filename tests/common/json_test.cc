#include "common/json.h"

#include <catch2/catch.hpp>
#include <string>

namespace ringmaster {
namespace {

std::string JsonError(const std::string& text, const JsonLimits& limits) {
  const auto json = ParseJson(text, limits);
  return json.ok() ? "" : Message(json.status());
}

TEST_CASE("Json: as deep as allowed, and no deeper") {
  const JsonLimits limits{.bytes = 100, .depth = 3};
  CHECK(JsonError(R"({"a": [{"b": 1}, {"c": []}]})", limits) ==
        "arrays and objects nested 4 deep, at most 3 are allowed");
  CHECK(JsonError(R"({"a": [{"b": 1}, {"c": 2}], "d": [[]]})", limits).empty());
  CHECK(JsonError(R"({"[[[[{{{{": "]\\\"[[[["})", limits).empty());
  CHECK(JsonError("1", {.bytes = 1, .depth = 0}).empty());
  CHECK_FALSE(JsonError("[[[", limits).empty());
  CHECK_FALSE(JsonError("]]]]", limits).empty());
}

TEST_CASE("Json: as long as allowed, and no longer") {
  const JsonLimits limits{.bytes = 10, .depth = 3};
  CHECK(JsonError("\"" + std::string(8, 'x') + "\"", limits).empty());
  CHECK(JsonError("\"" + std::string(9, 'x') + "\"", limits) ==
        "11 bytes of JSON, at most 10 are allowed");
}

TEST_CASE("Json: whole numbers, and what is none") {
  const auto json = ParseJson(R"([0, 18446744073709551615, -1, 1.0, 4e18, 1e400, "1", true, null])",
                              {.depth = 1});
  CHECK_FALSE(json.ok());  // 1e400
  const auto numbers =
      ParseJson(R"([0, 18446744073709551615, -1, 1.0, 4e18, "1", true, null])", {.depth = 1});
  REQUIRE(numbers.ok());
  CHECK(WholeNumber(numbers->at(0)) == 0);
  CHECK(WholeNumber(numbers->at(1)) == UINT64_MAX);
  for (size_t i = 2; i < numbers->size(); ++i) {
    CHECK_THROWS_AS((void)WholeNumber(numbers->at(i)), nlohmann::json::type_error);
  }
}

TEST_CASE("Json: brackets without end cost no more than reading them") {
  const std::string brackets(20'000'000, '[');
  CHECK(JsonError(brackets, {.bytes = 20'000'000, .depth = 3}) ==
        "arrays and objects nested 20000000 deep, at most 3 are allowed");
}

}  // namespace
}  // namespace ringmaster
