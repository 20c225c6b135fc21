#include "tests/support/stablehlo/cursor.h"

#include <cctype>
#include <charconv>

namespace ringmaster::testing::stablehlo {
namespace {

// A tensor of more elements than this is a mistake in the text, not a model.
constexpr int64_t kMostElements = int64_t{1} << 40;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsWordPart(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '$';
}
bool IsHexDigit(char c) { return std::isxdigit(static_cast<unsigned char>(c)); }

}  // namespace

void Cursor::Skip() {
  for (; at_ < text_.size(); ++at_) {
    if (text_.substr(at_, 2) == "//") {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      if (at_ == text_.size()) return;
    }
    if (text_[at_] == '\n') {
      ++line_;
      line_begin_ = at_ + 1;
    } else if (text_[at_] != ' ' && text_[at_] != '\t' && text_[at_] != '\r') {
      return;
    }
  }
}

Position Cursor::position() {
  Skip();
  return {line_, static_cast<int>(at_ - line_begin_) + 1};
}

bool Cursor::AtEnd() {
  Skip();
  return at_ == text_.size();
}

bool Cursor::Sees(std::string_view token) {
  Skip();
  if (text_.substr(at_, token.size()) != token) return false;
  const size_t behind = at_ + token.size();
  return !IsWordPart(token.back()) || behind == text_.size() || !IsWordPart(text_[behind]);
}

bool Cursor::Accept(std::string_view token) {
  if (!Sees(token)) return false;
  at_ += token.size();
  return true;
}

bool Cursor::AcceptHere(std::string_view token) {
  if (text_.substr(at_, token.size()) != token) return false;
  at_ += token.size();
  return true;
}

Status Cursor::Expect(std::string_view token) {
  return Accept(token) ? absl::OkStatus() : Unexpected(fmt::format("'{}'", token));
}

Status Cursor::Unexpected(std::string_view expected) {
  const Position at = position();
  if (at_ == text_.size()) return ErrorAt(at, "expected {}, the text ends", expected);
  const std::string_view rest = text_.substr(at_, 24);
  return ErrorAt(at, "expected {}, got '{}'", expected, rest.substr(0, rest.find('\n')));
}

std::string_view Cursor::TakeWhile(bool (*belongs)(char)) {
  const size_t begin = at_;
  while (at_ < text_.size() && belongs(text_[at_])) ++at_;
  return text_.substr(begin, at_ - begin);
}

StatusOr<std::string> Cursor::Word() {
  Skip();
  if (IsDigit(Here()) || !IsWordPart(Here())) return Unexpected("a word");
  return std::string(TakeWhile(IsWordPart));
}

StatusOr<std::string> Cursor::Name(char sigil) {
  Skip();
  if (Here() != sigil) return Unexpected(fmt::format("a name that begins with '{}'", sigil));
  ++at_;
  const std::string_view name = TakeWhile(IsWordPart);
  if (name.empty()) return Unexpected(fmt::format("a name behind '{}'", sigil));
  return std::string(name);
}

StatusOr<std::string> Cursor::Quoted() {
  RING_RETURN_IF_ERROR(Expect("\""));
  const size_t end = text_.find_first_of("\"\n", at_);
  if (end == std::string_view::npos || text_[end] == '\n') return Unexpected("a closing '\"'");
  std::string text(text_.substr(at_, end - at_));
  at_ = end + 1;
  return text;
}

StatusOr<std::string> Cursor::Number() {
  Skip();
  std::string number;
  if (Here() == '-') {
    number = "-";
    ++at_;
  }
  if (!IsDigit(Here())) return Unexpected("a number");
  if (text_.substr(at_, 2) == "0x") {
    at_ += 2;
    return number + "0x" + std::string(TakeWhile(IsHexDigit));
  }
  number += TakeWhile(IsDigit);
  // As MLIR reads numbers: without a point there is no exponent.
  if (Here() == '.') {
    ++at_;
    number += "." + std::string(TakeWhile(IsDigit));
    if (Here() == 'e' || Here() == 'E') {
      ++at_;
      number += 'e';
      if (Here() == '-' || Here() == '+') number += text_[at_++];
      if (!IsDigit(Here())) return Unexpected("the digits of an exponent");
      number += TakeWhile(IsDigit);
    }
  }
  if (IsWordPart(Here())) return Unexpected("the end of a number");
  return number;
}

StatusOr<int64_t> Cursor::Integer() {
  const Position at = position();
  RING_ASSIGN_OR_RETURN(const std::string text, Number());
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return ErrorAt(at, "expected an integer of 64 bits, got '{}'", text);
  }
  return value;
}

StatusOr<Type> Cursor::ElementTypeHere() {
  const Position at = position();
  const std::string name(TakeWhile(IsWordPart));
  for (size_t type = 0; type <= static_cast<size_t>(Type::kFloat16); ++type) {
    if (name == stablehlo::Name(static_cast<Type>(type))) return static_cast<Type>(type);
  }
  return ErrorAt(at, "no element type '{}' here: i1, i32, i64, ui32, ui64, f32, bf16, f16", name);
}

StatusOr<TensorType> Cursor::Tensor() {
  const Position at = position();
  RING_RETURN_IF_ERROR(Expect("tensor"));
  RING_RETURN_IF_ERROR(Expect("<"));
  TensorType type;
  Skip();
  while (IsDigit(Here())) {
    const std::string digits(TakeWhile(IsDigit));
    int64_t extent = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), extent);
    type.shape.push_back(extent);
    if (digits.size() > 12 || Elements(type.shape) > kMostElements || type.shape.size() > 12) {
      return ErrorAt(at, "a tensor of an impossible size");
    }
    if (!AcceptHere("x")) return Unexpected("'x' between extents and element type");
  }
  RING_ASSIGN_OR_RETURN(type.type, ElementTypeHere());
  RING_RETURN_IF_ERROR(Expect(">"));
  return type;
}

}  // namespace ringmaster::testing::stablehlo
