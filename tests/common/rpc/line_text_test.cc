#include "common/line_text.h"

#include <catch2/catch.hpp>

namespace ringmaster {
namespace {

TEST_CASE("Line text: what is not UTF-8 is replaced byte by byte") {
  CHECK(CleanText("plain", 100) == "plain");
  CHECK(CleanText("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 100) ==
        "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
  CHECK(CleanText("a\xff\xfe"
                  "b",
                  100) == "a??b");
  CHECK(CleanText("\xc3", 100) == "?");                 // torn
  CHECK(CleanText("\xc0\xaf", 100) == "??");            // overlong
  CHECK(CleanText("\xed\xa0\x80", 100) == "???");       // surrogate
  CHECK(CleanText("\xf4\x90\x80\x80", 100) == "????");  // beyond U+10FFFF
}

TEST_CASE("Line text: a long text is cut at a character, and says so") {
  CHECK(CleanText("12345", 5) == "12345");
  CHECK(CleanText("123456", 5) == "12345 [1 bytes cut off]");
  CHECK(CleanText("1234\xc3\xa4", 5) == "1234 [2 bytes cut off]");
}

TEST_CASE("Line text: line breaks and backslashes come back") {
  const std::string text = "a\nb\\n\\\n";
  CHECK(EscapeLine(text) == "a\\nb\\\\n\\\\\\n");
  CHECK(UnescapeLine(EscapeLine(text)) == text);
  CHECK(UnescapeLine("torn\\") == "torn\\");
}

}  // namespace
}  // namespace ringmaster
