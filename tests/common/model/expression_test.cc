#include "common/model/expression.h"

#include <catch2/catch.hpp>
#include <string>

namespace ringmaster::model {
namespace {

// `3`, or what is wrong.
std::string Of(const std::string& text) {
  const auto value = Evaluate(text, [](const std::string& name) -> StatusOr<Value> {
    if (name == "index") return Value(int64_t{3});
    if (name == "half") return Value(0.5);
    if (name == "on") return Value(true);
    if (name == "word") return Value(std::string("same"));
    return InvalidArgument("there is no {}", name);
  });
  return value.ok() ? Print(*value) : Message(value.status());
}

}  // namespace

TEST_CASE("Expression: whole numbers, precedence and rounding down") {
  CHECK(Of("1+2*3") == "7");
  CHECK(Of("(1+2)*3 - -4") == "13");
  CHECK(Of("7//2") == "3");
  CHECK(Of("-7//2") == "-4");
  CHECK(Of("-7%2") == "1");
  CHECK(Of("7%-2") == "-1");
  CHECK(Of("index*index-1") == "8");
  CHECK(Of("min(4, 2, 3)") == "2");
  CHECK(Of("max(1, half, index)") == "3");
}

TEST_CASE("Expression: real numbers stay real, words and truths are compared") {
  CHECK(Of("half*4") == "2.0");
  CHECK(Of("1e-3") == "0.001");
  CHECK(Of("half*4 == 2") == "true");
  CHECK(Of("word == 'same' and not on == false") == "true");
  CHECK(Of("1 < 2 and 2 <= 2 and 3 > 2 and 3 >= 4 or 1 != 1") == "false");
  CHECK(Of("'same' if index == 3 else 'valid'") == "same");
  CHECK(Of("1 if index==1 else 2 if index==3 else 4") == "2");
}

TEST_CASE("Expression: what is not chosen needs no value") {
  CHECK(Of("1//0 if index==1 else 5") == "5");
  CHECK(Of("index==3 or nothing") == "true");
  CHECK(Of("index==1 and 1//0 == 2") == "false");
  CHECK(Of("1//0") == "1 // 0");
}

TEST_CASE("Expression: what does not fit or is none is an error that says so") {
  CHECK(Of("9223372036854775807 + 1") == "9223372036854775807 + 1 does not fit into 64 bits");
  CHECK(Of("9223372036854775807 * index") == "9223372036854775807 * 3 does not fit into 64 bits");
  CHECK(Of("(-9223372036854775807-1)//-1") ==
        "-9223372036854775808 // -1 does not fit into 64 bits");
  CHECK(Of("9223372036854775808") == "\"9223372036854775808\" is no number of 64 bits");
  CHECK(Of("1e308*half*1e308") == "5e+307 * 1e+308 is not finite");
  CHECK(Of("4/2") == "expected an operator, got \"/\"; // divides whole numbers");
  CHECK(Of("half//2") == "0.5 // 2: expected whole numbers");
  CHECK(Of("on+1") == "+ of true: expected numbers");
  CHECK(Of("word < 2") == "\"same\" < 2: expected numbers");
  CHECK(Of("1 if 2 else 3") == "if 2: expected true or false");
  CHECK(Of("") == "expected a value, got its end");
  CHECK(Of("(1") == "expected \")\", got its end");
  CHECK(Of("1 +") == "expected a value, got its end");
  CHECK(Of("1 < 2 < 3") == "expected an operator, got \"<\"");
  CHECK(Of("'same") == "a word without its second '");
  CHECK(Of("nothing") == "there is no nothing");
  CHECK(Of(std::string(201, '1')) == "an expression of 201 bytes; at most 200 are allowed");
  CHECK(Of(std::string(33, '(') + "1" + std::string(33, ')')) == "more than 32 parentheses");
}

}  // namespace ringmaster::model
