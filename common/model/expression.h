// Expressions of model files, behind `=`: whole numbers of 64 bits (what does not fit is an error),
// real numbers, true and false, words in single quotes, names; + - * // % () == != < <= > >= and,
// or, not, A if CONDITION else B, min(), max(). // and % round down. Pure; thread-safe (free
// function).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>

#include "common/status.h"

namespace ringmaster::model {

using Value = std::variant<bool, int64_t, double, std::string>;

// What a name stands for, or why it stands for nothing.
using Names = std::function<StatusOr<Value>(const std::string& name)>;

inline constexpr size_t kMaxExpressionBytes = 200;

// INVALID_ARGUMENT says what is wrong. Of `A if CONDITION else B` only what is chosen has to have a
// value; likewise behind `and` and `or`.
[[nodiscard]] StatusOr<Value> Evaluate(const std::string& text, const Names& names);

// As a job file has it: `3`, `2.0`, `true`; a word as it is.
[[nodiscard]] std::string Print(const Value& value);

}  // namespace ringmaster::model
