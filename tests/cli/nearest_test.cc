#include <catch2/catch.hpp>

#include "common/edit_distance.h"

namespace ringmaster::cli {
namespace {

TEST_CASE("Nearest: finds slips of the keyboard and beginnings, and nothing far away") {
  const std::vector<std::string> commands = {"status", "submit", "ps", "watch", "workers"};
  CHECK(Nearest("stauts", commands) == "status");
  CHECK(Nearest("sumbit", commands) == "submit");
  CHECK(Nearest("work", commands) == "workers");
  CHECK(Nearest("p", commands).empty());
  CHECK(Nearest("delete", commands).empty());
  CHECK(Nearest("", commands).empty());
  CHECK(Nearest("status", {}).empty());
}

TEST_CASE("Nearest: a part of a longer word") {
  CHECK(Nearest("float16", {"float32", "mixed_bfloat16", "mixed_float16"}) == "mixed_float16");
  CHECK(Nearest("ri", {"string"}).empty());
}

}  // namespace
}  // namespace ringmaster::cli
