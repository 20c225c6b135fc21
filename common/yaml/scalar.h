// Scalars of a YAML tree: as numbers, and back as text. Thread-safe (free functions).
#pragma once

#include <cstdint>
#include <string>

#include "common/status.h"
#include "common/yaml/yaml_tree.h"

namespace ringmaster {

// INVALID_ARGUMENT: `job.yaml:3:8: batch: expected a whole number, got "x"`; `what` is what it is
// of.
[[nodiscard]] Status WrongType(const YamlNode& node, const std::string& what,
                               const std::string& expected);
// int64_t, uint32_t and uint64_t.
template <typename Integer>
[[nodiscard]] StatusOr<Integer> ReadInteger(const YamlNode& node, const std::string& what);
[[nodiscard]] StatusOr<double> ReadDouble(const YamlNode& node, const std::string& what);
[[nodiscard]] StatusOr<bool> ReadBool(const YamlNode& node, const std::string& what);

// In double quotes unless every YAML reader takes it for the same plain word.
[[nodiscard]] std::string PrintWord(const std::string& word);

}  // namespace ringmaster
