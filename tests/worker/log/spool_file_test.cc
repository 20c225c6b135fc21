#include "worker/log/spool_file.h"

#include <catch2/catch.hpp>

namespace ringmaster::worker {
namespace {

const std::string kSpool(32, 'a');

TEST_CASE("Spool file: a line comes back, line breaks and all") {
  v1::SpooledLine line;
  line.set_number(7);
  line.set_job_id("j0001");
  line.set_unix_ms(1'700'000'000'123);
  line.set_level("warning");
  line.set_text("two\nlines \\ and  spaces ");
  const std::string text = FormatLine(line);
  CHECK(text == "7 1700000000123 warning j0001 two\\nlines \\\\ and  spaces \n");
  const auto back = ParseLine(text.substr(0, text.size() - 1));
  REQUIRE(back);
  CHECK(back->SerializeAsString() == line.SerializeAsString());
}

TEST_CASE("Spool file: what is not a line is none") {
  for (const char* bad :
       {"", "1", "1 2 info", "0 2 info j text", "x 2 info j text", "1 x info j text",
        "-1 2 info j text", "1 2 info j \xff", "1 2 info j te\nxt"}) {
    INFO(bad);
    CHECK_FALSE(ParseLine(bad));
  }
  CHECK(ParseLine("1 2 info j "));  // an empty text
}

TEST_CASE("Spool file: names and state have one form only") {
  const SegmentName name{12, kSpool};
  CHECK(name.ToString() == "00000000000000000012-" + kSpool + ".log");
  REQUIRE(ParseSegmentName(name.ToString()));
  CHECK(ParseSegmentName(name.ToString())->first == 12);
  for (const std::string& bad : {std::string("state"), "00000000000000000000-" + kSpool + ".log",
                                 "0000000000000000012-" + kSpool + ".log", name.ToString() + ".old",
                                 "00000000000000000012-" + std::string(32, 'g') + ".log"}) {
    INFO(bad);
    CHECK_FALSE(ParseSegmentName(bad));
  }
  const std::string state = FormatState({kSpool, 5, 9});
  REQUIRE(ParseState(state));
  CHECK(ParseState(state)->spool == kSpool);
  CHECK(ParseState(state)->acknowledged == 5);
  CHECK(ParseState(state)->next == 9);
  CHECK_FALSE(ParseState(""));
  CHECK_FALSE(ParseState(state.substr(1)));
  CHECK_FALSE(ParseState(state + "\n"));
}

}  // namespace
}  // namespace ringmaster::worker
