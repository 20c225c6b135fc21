#include "common/yaml/scalar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <type_traits>

namespace ringmaster {
namespace {

bool IsPlain(const YamlNode& node) { return node.kind == YamlNode::Kind::kScalar && !node.quoted; }

}  // namespace

Status WrongType(const YamlNode& node, const std::string& what, const std::string& expected) {
  return InvalidArgument("{}: {}: expected {}, got {}", node.where, what, expected, Describe(node));
}

template <typename Integer>
StatusOr<Integer> ReadInteger(const YamlNode& node, const std::string& what) {
  const std::string& text = node.text;
  const size_t digits = std::is_signed_v<Integer> && text.starts_with('-') ? 1 : 0;
  Integer value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // A leading zero would be octal in older YAML and decimal in newer: refused instead.
  const bool ambiguous = text.size() > digits + 1 && text[digits] == '0';
  const bool negative = text.size() > 1 && text[0] == '-' &&
                        text.find_first_not_of("0123456789", 1) == std::string::npos;
  if (IsPlain(node) && !ambiguous &&
      (error == std::errc::result_out_of_range || (negative && digits == 0))) {
    return InvalidArgument("{}: {}: {} is not in {} to {}", node.where, what, text,
                           std::numeric_limits<Integer>::min(),
                           std::numeric_limits<Integer>::max());
  }
  if (!IsPlain(node) || ambiguous || error != std::errc() || end != text.data() + text.size()) {
    return WrongType(node, what, "a whole number");
  }
  return value;
}

template StatusOr<int64_t> ReadInteger(const YamlNode&, const std::string&);
template StatusOr<uint32_t> ReadInteger(const YamlNode&, const std::string&);
template StatusOr<uint64_t> ReadInteger(const YamlNode&, const std::string&);

StatusOr<double> ReadDouble(const YamlNode& node, const std::string& what) {
  const std::string& text = node.text;
  const char* const begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const char* const last = text.data() + text.size();
  double value = 0;
  const auto [end, error] = std::from_chars(begin, last, value);
  if (!IsPlain(node) || end != last || error == std::errc::invalid_argument ||
      (error == std::errc() && !std::isfinite(value))) {
    return WrongType(node, what, "a number");
  }
  if (error == std::errc::result_out_of_range) {
    return InvalidArgument("{}: {}: {} does not fit into a double", node.where, what, text);
  }
  return value;
}

StatusOr<bool> ReadBool(const YamlNode& node, const std::string& what) {
  if (IsPlain(node) && node.text == "true") return true;
  if (IsPlain(node) && node.text == "false") return false;
  return WrongType(node, what, "true or false");
}

namespace {

std::string Lowered(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

}  // namespace

std::string PrintWord(const std::string& text) {
  // What YAML 1.1 takes for something else; y and n alone it does, readers do not.
  constexpr std::array<std::string_view, 7> kWords = {"null", "true", "false", "yes",
                                                      "no",   "on",   "off"};
  const bool plain = !text.empty() && std::ranges::find(kWords, Lowered(text)) == kWords.end() &&
                     ((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z')) &&
                     text.find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/") ==
                         std::string::npos;
  if (plain) return text;
  std::string yaml = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') yaml += '\\';
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      yaml += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      yaml += c;
    }
  }
  return yaml + '"';
}

}  // namespace ringmaster
