// JSON that somebody else wrote: bounded before it is parsed. Thread-safe (free functions).
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "common/status.h"

namespace ringmaster {

struct JsonLimits {
  size_t bytes = 1 << 20;
  size_t depth = 3;  // of arrays and objects in each other; a number alone has 0
};

// INVALID_ARGUMENT: longer or deeper than allowed, or no JSON, and where. Time and memory are
// linear in the length, and no object is kept of a text that is too deep.
[[nodiscard]] StatusOr<nlohmann::json> ParseJson(const std::string& text, const JsonLimits& limits);

}  // namespace ringmaster
