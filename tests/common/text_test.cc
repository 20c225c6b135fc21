#include <algorithm>

#include <catch2/catch.hpp>

#include "common/text.h"

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

TEST_CASE("Line text: what a peer says is one line that moves no cursor and turns nothing around") {
  CHECK(OneLine("plain \xc3\xa4 \\n") == "plain \xc3\xa4 \\n");
  CHECK(OneLine("a\nb\r\nc\td") == "a\\nb\\r\\nc d");
  CHECK(OneLine(std::string("\0\x07\x1b[31m\x7f", 8)) == "\\x00\\x07\\x1b[31m\\x7f");
  CHECK(OneLine("\xc2\x9b"
                "2J\xc2\x85\xc2\xa0") ==
        "\\x9b"
        "2J\\x85\xc2\xa0");  // C1, not U+00A0
  CHECK(OneLine("\xe2\x80\xae"
                "abc\xe2\x81\xa9") ==
        "\\u202e"
        "abc\\u2069");  // bidi
  CHECK(OneLine("a\xe2\x80\xa8"
                "b\xef\xbb\xbf\xd8\x9c") ==
        "a\\u2028"
        "b\\ufeff\\u061c");
  CHECK(OneLine("\xff\xc3") == "\\xff\\xc3");
}

TEST_CASE(
    "Line text: what a peer says is at most as long as allowed, and the same again is the same") {
  CHECK(OneLine(std::string(100, 'x'), 100) == std::string(100, 'x'));
  CHECK(OneLine(std::string(101, 'x'), 100) == std::string(80, 'x') + " [21 bytes cut off]");
  std::string hostile;
  for (int i = 0; i < 300; ++i) hostile += i % 3 == 0 ? "\x1b" : i % 3 == 1 ? "\xe2\x80\xae" : "y";
  for (size_t most = 0; most < 200; ++most) {
    const std::string line = OneLine(hostile, most);
    CHECK(line.size() <= std::max<size_t>(most, 22));
    CHECK((most < 22 || OneLine(line, most) == line));
  }
  CHECK(OneLine(std::string(4 << 20, '\n')).size() <= kMaxReasonText);
}

TEST_CASE("Line text: line breaks and backslashes come back") {
  const std::string text = "a\nb\\n\\\n";
  CHECK(EscapeLine(text) == "a\\nb\\\\n\\\\\\n");
  CHECK(UnescapeLine(EscapeLine(text)) == text);
  CHECK(UnescapeLine("torn\\") == "torn\\");
}

TEST_CASE("EditDistance: counts insertions, deletions, replacements and swaps of neighbours") {
  CHECK(EditDistance("", "") == 0);
  CHECK(EditDistance("", "abc") == 3);
  CHECK(EditDistance("abc", "") == 3);
  CHECK(EditDistance("alexnet", "alexnet") == 0);
  CHECK(EditDistance("alexnte", "alexnet") == 1);
  CHECK(EditDistance("kitten", "sitting") == 3);
}

TEST_CASE("Nearest: one slip in short words, two in long ones, a third of the letters at most") {
  CHECK(Nearest("vvg", {"alexnet", "mlp", "vgg"}) == "vgg");
  CHECK(Nearest("gte", {"ls", "get", "verify"}) == "get");
  CHECK(Nearest("learnin_rat", {"learning_rate", "momentum"}) == "learning_rate");
  CHECK(Nearest("shrads", {"batch", "shards", "seed"}) == "shards");
  CHECK(Nearest("ab", {"ac"}).empty());
  CHECK(Nearest("vxy", {"vgg"}).empty());
  CHECK(Nearest("btahc", {"batch"}).empty());  // two slips in five letters
  CHECK(Nearest(std::string(1'000'000, 'x'), {"batch"}).empty());
}

TEST_CASE("Nearest: what is only the least far away was not meant") {
  CHECK(Nearest("resnet50", {"alexnet", "mlp", "vgg"}).empty());
  CHECK(Nearest("rmsprop", {"sgd", "adam"}).empty());
  CHECK(Nearest("metrics", {"name", "model", "data", "batch", "shards", "epochs"}).empty());
}

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

}  // namespace ringmaster
