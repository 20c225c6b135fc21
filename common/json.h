// JSON that somebody else wrote: bounded before it is parsed. Thread-safe (free functions).
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "common/status.h"

namespace ringmaster {

struct JsonLimits {
  size_t bytes = 1 << 20;
  size_t depth = 4;  // of arrays and objects in each other, as manifests have; a number has 0
};

// INVALID_ARGUMENT: longer or deeper than allowed, or no JSON, and where. Time and memory are
// linear in the length, and no object is kept of a text that is too deep.
[[nodiscard]] StatusOr<nlohmann::json> ParseJson(const std::string& text, const JsonLimits& limits);

// A number that a file has to have whole. The library's own get would make 1 of 1.5 and of -1
// something large, and take 1e30, of which no integer is defined. Throws
// nlohmann::json::type_error, as get does.
[[nodiscard]] uint64_t WholeNumber(const nlohmann::json& value);

}  // namespace ringmaster
