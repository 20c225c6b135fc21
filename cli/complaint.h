// What ringctl says when something is wrong: to the shell its exit code, to people what they
// probably meant.
#pragma once

#include <string>

#include <CLI/App.hpp>

#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::cli {

// What ringctl tells the shell. Thread-safe (free functions).
enum class ExitCode : int {
  kOk = 0,
  kOther = 1,  // anything that has no number of its own
  kUsage = 2,  // the command line or the job file
  kJobFailed = 3,
  kJobCancelled = 4,
  kUnreachable = 5,
  kTimedOut = 124,  // as timeout(1)
};

// INVALID_ARGUMENT is the user's input; UNAVAILABLE and DEADLINE_EXCEEDED mean that no coordinator
// answered (Client lets only those two mean that); the rest has no number of its own.
[[nodiscard]] ExitCode ExitCodeOf(const Status& status);

// Of a job that reached a final state; kOther for any other state.
[[nodiscard]] ExitCode ExitCodeOf(v1::JobState state);
[[nodiscard]] bool IsFinal(v1::JobState state);

// What is wrong with a command line, with the word that was probably meant; and the help of the
// command that was named. Thread-safe (free functions on an App that has parsed).

// INVALID_ARGUMENT. `error` is CLI11's own word, used where no word is unknown.
[[nodiscard]] Status Complaint(const CLI::App& root, const std::string& error);

// Of the innermost command that was named.
[[nodiscard]] std::string Help(const CLI::App& root);

}  // namespace ringmaster::cli
