#include "common/model/expression.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "common/text.h"

namespace ringmaster::model {
namespace {

using Result = StatusOr<Value>;

bool IsNumber(const Value& value) {
  return std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value);
}

double Real(const Value& value) {
  const auto* const whole = std::get_if<int64_t>(&value);
  return whole != nullptr ? static_cast<double>(*whole) : std::get<double>(value);
}

std::string Named(const Value& value) {
  const bool word = std::holds_alternative<std::string>(value);
  return word ? fmt::format("\"{}\"", Print(value)) : Print(value);
}

Result Whole(const std::string& sign, int64_t a, int64_t b) {
  int64_t result = 0;
  bool fits = true;
  if (sign == "+") fits = !__builtin_add_overflow(a, b, &result);
  if (sign == "-") fits = !__builtin_sub_overflow(a, b, &result);
  if (sign == "*") fits = !__builtin_mul_overflow(a, b, &result);
  if (sign == "//" || sign == "%") {
    if (b == 0) return InvalidArgument("{} {} 0", a, sign);
    if (b == -1) {  // of the least number a quotient would not fit
      fits = sign == "%" || !__builtin_sub_overflow(int64_t{0}, a, &result);
    } else {
      const bool down = a % b != 0 && (a < 0) != (b < 0);
      result = sign == "%" ? a % b + (down ? b : 0) : a / b - (down ? 1 : 0);
    }
  }
  if (fits) return Value(result);
  return InvalidArgument("{} {} {} does not fit into 64 bits", a, sign, b);
}

Result Arithmetic(const std::string& sign, const Result& left, const Result& right) {
  RING_RETURN_IF_ERROR(left.status());
  RING_RETURN_IF_ERROR(right.status());
  for (const Result* operand : {&left, &right}) {
    if (IsNumber(**operand)) continue;
    return InvalidArgument("{} of {}: expected numbers", sign, Named(**operand));
  }
  const auto *a = std::get_if<int64_t>(&*left), *b = std::get_if<int64_t>(&*right);
  if (a != nullptr && b != nullptr) return Whole(sign, *a, *b);
  if (sign == "//" || sign == "%") {
    return InvalidArgument("{} {} {}: expected whole numbers", Named(*left), sign, Named(*right));
  }
  const double x = Real(*left), y = Real(*right);
  const double result = sign == "+" ? x + y : sign == "-" ? x - y : x * y;
  if (std::isfinite(result)) return Value(result);
  return InvalidArgument("{} {} {} is not finite", x, sign, y);
}

Result Compare(const std::string& sign, const Result& left, const Result& right) {
  RING_RETURN_IF_ERROR(left.status());
  RING_RETURN_IF_ERROR(right.status());
  const bool numbers = IsNumber(*left) && IsNumber(*right);
  const bool both_whole = numbers && left->index() == right->index();
  if (sign == "==" || sign == "!=") {
    const bool equal = numbers && !both_whole ? Real(*left) == Real(*right) : *left == *right;
    return Value(equal == (sign == "=="));
  }
  if (!numbers) {
    return InvalidArgument("{} {} {}: expected numbers", Named(*left), sign, Named(*right));
  }
  const bool less = both_whole ? *left < *right : Real(*left) < Real(*right);
  const bool more = both_whole ? *right < *left : Real(*right) < Real(*left);
  return Value(sign == "<" ? less : sign == "<=" ? !more : sign == ">" ? more : !less);
}

StatusOr<bool> Truth(const std::string& where, const Result& value) {
  RING_RETURN_IF_ERROR(value.status());
  if (const bool* const truth = std::get_if<bool>(&*value)) return *truth;
  return InvalidArgument("{} {}: expected true or false", where, Named(*value));
}

// Reads and evaluates at once. What has no value is carried along, because it may not be chosen;
// what is no expression ends everything.
class Parser {
 public:
  Parser(const std::string& text, const Names& names) : text_(text), names_(names) { Next(); }

  Result Parse() {
    const Result result = Conditional();
    if (!token_.empty() && bad_.ok()) Unexpected("an operator");
    RING_RETURN_IF_ERROR(bad_);
    return result;
  }

 private:
  static bool IsLetter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  }
  static bool IsDigit(char c) { return c >= '0' && c <= '9'; }

  // Empty at the end.
  void Next() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    const size_t begin = at_;
    const auto take = [&](const auto& fits) {
      while (at_ < text_.size() && fits(text_[at_])) ++at_;
    };
    if (at_ == text_.size()) {
      token_.clear();
      return;
    }
    if (IsLetter(text_[at_])) {
      take([](char c) { return IsLetter(c) || IsDigit(c) || c == '.'; });
    } else if (IsDigit(text_[at_])) {
      take([&](char c) {
        const bool sign =
            (c == '+' || c == '-') && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E');
        return IsLetter(c) || IsDigit(c) || c == '.' || sign;
      });
    } else if (text_[at_] == '\'') {
      ++at_;
      take([](char c) { return c != '\''; });
      if (at_ == text_.size()) return Refuse("a word without its second '");
      ++at_;
    } else {
      const std::string two = text_.substr(at_, 2);
      const bool long_sign =
          two == "==" || two == "!=" || two == "<=" || two == ">=" || two == "//";
      at_ += long_sign ? 2 : 1;
    }
    token_ = text_.substr(begin, at_ - begin);
  }

  void Refuse(const std::string& why) {
    if (bad_.ok()) bad_ = InvalidArgument("{}", why);
    at_ = text_.size();
    token_.clear();
  }
  void Unexpected(const std::string& expected) {
    const std::string got = token_.empty() ? "its end" : fmt::format("\"{}\"", OneLine(token_));
    const char* const advice = token_ == "/" ? "; // divides whole numbers" : "";
    Refuse(fmt::format("expected {}, got {}{}", expected, got, advice));
  }
  bool Take(const std::string& token) {
    if (token_ != token) return false;
    Next();
    return true;
  }
  void Want(const std::string& token) {
    if (!Take(token) && bad_.ok()) Unexpected(fmt::format("\"{}\"", token));
  }

  Result Conditional() {
    Result chosen = Or();
    if (!Take("if")) return chosen;
    const StatusOr<bool> condition = Truth("if", Or());
    Want("else");
    Result other = Conditional();
    RING_RETURN_IF_ERROR(condition.status());
    return *condition ? chosen : other;
  }

  Result Or() {
    Result left = And();
    while (Take("or")) left = Either(true, "or", left, And());
    return left;
  }
  Result And() {
    Result left = Not();
    while (Take("and")) left = Either(false, "and", left, Not());
    return left;
  }
  // The right side has to have a value only where the left one is not `decides`.
  static Result Either(bool decides, const char* sign, const Result& left, const Result& right) {
    RING_ASSIGN_OR_RETURN(const bool first, Truth(sign, left));
    if (first == decides) return Value(first);
    RING_ASSIGN_OR_RETURN(const bool second, Truth(sign, right));
    return Value(second);
  }
  Result Not() {
    if (!Take("not")) return Comparison();
    RING_ASSIGN_OR_RETURN(const bool truth, Truth("not", Not()));
    return Value(!truth);
  }

  Result Comparison() {
    Result left = Sum();
    for (const char* const sign : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (Take(sign)) return Compare(sign, left, Sum());
    }
    return left;
  }
  Result Sum() {
    Result left = Term();
    while (token_ == "+" || token_ == "-") {
      const std::string sign = std::exchange(token_, "");
      Next();
      left = Arithmetic(sign, left, Term());
    }
    return left;
  }
  Result Term() {
    Result left = Signed();
    while (token_ == "*" || token_ == "//" || token_ == "%") {
      const std::string sign = std::exchange(token_, "");
      Next();
      left = Arithmetic(sign, left, Signed());
    }
    return left;
  }
  Result Signed() {
    if (Take("-")) return Arithmetic("-", Value(int64_t{0}), Signed());
    return Primary();
  }

  Result Primary() {
    const std::string token = token_;
    const bool reserved = token == "if" || token == "else" || token == "and" || token == "or";
    if (token.empty() || reserved) return NoValue();
    if (IsDigit(token[0])) return Number();
    if (token[0] == '\'') {
      Next();
      return Value(token.substr(1, token.size() - 2));
    }
    if (Take("(")) {
      constexpr int kMostOpen = 32;
      if (++open_ > kMostOpen) {
        Refuse(fmt::format("more than {} parentheses", kMostOpen));
        return bad_;
      }
      Result inner = Conditional();
      Want(")");
      return inner;
    }
    if (!IsLetter(token[0])) return NoValue();
    Next();
    if (token == "true" || token == "false") return Value(token == "true");
    if (token == "min" || token == "max") return Extreme(token);
    return names_(token);
  }

  Result NoValue() {
    Unexpected("a value");
    return bad_;
  }

  Result Number() {
    const std::string token = token_;
    const char* const end = token.data() + token.size();
    int64_t whole = 0;
    double real = 0;
    const auto as_whole = std::from_chars(token.data(), end, whole);
    const auto as_real = std::from_chars(token.data(), end, real);
    const bool ambiguous = token.size() > 1 && token[0] == '0' && IsDigit(token[1]);
    Next();
    if (!ambiguous && as_whole.ec == std::errc() && as_whole.ptr == end) return Value(whole);
    const bool is_whole = token.find_first_not_of("0123456789") == std::string::npos;
    if (!ambiguous && !is_whole && as_real.ec == std::errc() && as_real.ptr == end) {
      return Value(real);
    }
    Refuse(fmt::format("\"{}\" is no number of 64 bits", token));
    return bad_;
  }

  Result Extreme(const std::string& name) {
    Want("(");
    Result best = Conditional();
    do {
      if (!bad_.ok()) return bad_;
      if (!best.ok() || IsNumber(*best)) continue;
      best = InvalidArgument("{} of {}: expected numbers", name, Named(*best));
    } while (TakeNext(name, &best));
    Want(")");
    return best;
  }
  bool TakeNext(const std::string& name, Result* best) {
    if (!Take(",")) return false;
    Result other = Conditional();
    const Result first = Compare(name == "min" ? "<" : ">", other, *best);
    if (!first.ok()) {
      *best = first.status();
    } else if (std::get<bool>(*first)) {
      *best = std::move(other);
    }
    return true;
  }

  const std::string& text_;
  const Names& names_;
  size_t at_ = 0;
  int open_ = 0;  // parentheses so far
  std::string token_;
  Status bad_;
};

}  // namespace

Result Evaluate(const std::string& text, const Names& names) {
  if (text.size() > kMaxExpressionBytes) {
    return InvalidArgument("an expression of {} bytes; at most {} are allowed", text.size(),
                           kMaxExpressionBytes);
  }
  return Parser(text, names).Parse();
}

std::string Print(const Value& value) {
  if (const bool* const truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  if (const auto* const whole = std::get_if<int64_t>(&value)) return fmt::format("{}", *whole);
  if (const auto* const word = std::get_if<std::string>(&value)) return *word;
  const std::string text = fmt::format("{}", std::get<double>(value));
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

}  // namespace ringmaster::model
