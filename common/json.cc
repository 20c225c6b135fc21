#include "common/json.h"

#include <fmt/format.h>

#include <algorithm>

namespace ringmaster {
namespace {

// The deepest nesting, as far as brackets outside of strings tell; right for every text that is
// JSON.
size_t DepthOf(const std::string& text) {
  size_t depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

StatusOr<nlohmann::json> ParseJson(const std::string& text, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    return InvalidArgument("{} bytes of JSON, at most {} are allowed", text.size(), limits.bytes);
  }
  if (const size_t depth = DepthOf(text); depth > limits.depth) {
    return InvalidArgument("arrays and objects nested {} deep, at most {} are allowed", depth,
                           limits.depth);
  }
  // The library throws; its exceptions end here.
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument("{}", error.what());
  }
}

uint64_t WholeNumber(const nlohmann::json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>();
  constexpr int kWrongType = 302;  // the library's number for it
  throw nlohmann::json::type_error::create(
      kWrongType, fmt::format("expected a whole number, got a {}", value.type_name()), &value);
}

}  // namespace ringmaster
