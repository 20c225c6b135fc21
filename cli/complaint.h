// What is wrong with a command line, with the word that was probably meant; and the help of the
// command that was named. Thread-safe (free functions on an App that has parsed).
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "common/status.h"

namespace ringmaster::cli {

// INVALID_ARGUMENT. `error` is CLI11's own word, used where no word is unknown.
[[nodiscard]] Status Complaint(const CLI::App& root, const std::string& error);

// Of the innermost command that was named.
[[nodiscard]] std::string Help(const CLI::App& root);

}  // namespace ringmaster::cli
