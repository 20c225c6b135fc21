#include "cli/show/names.h"

#include <catch2/catch.hpp>

namespace ringmaster::cli {
namespace {

TEST_CASE("Names: a reason of several lines has a first one and others") {
  const std::string reason = "does not fit\\nhost  1 GiB\\n  9 MiB  conv";
  CHECK(FirstLine(reason) == "does not fit");
  CHECK(OtherLines(reason) == "host  1 GiB\n  9 MiB  conv\n");
  CHECK(FirstLine("one\x1b[2J") == "one\\x1b[2J");
  CHECK(OtherLines("one").empty());
  CHECK(OtherLines("a\\nb\x1b") == "b\\x1b\n");
}

}  // namespace
}  // namespace ringmaster::cli
