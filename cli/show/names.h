// What states, generations and numbers of a job are called in every output. Values in, text out;
// thread-safe (free functions).
#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <string>

#include "cli/show/terminal.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::cli {

// RUNNING for JOB_STATE_RUNNING; UNKNOWN for a state of a newer coordinator.
[[nodiscard]] std::string StateName(v1::JobState state);
[[nodiscard]] Colour ColourOf(v1::JobState state);
// Of `info`, `warning`, `error`, in whatever case.
[[nodiscard]] Colour ColourOfSeverity(const std::string& severity);
// `term.counter`; empty before the first generation.
[[nodiscard]] std::string GenerationName(const v1::JobStatus& status);

// Whether the coordinator counts updates (an older one does not), and step - updates.
[[nodiscard]] bool UpdatesKnown(const v1::JobStatus& status);
[[nodiscard]] uint64_t SkippedSteps(const v1::JobStatus& status);

// `7/100`, and `7` before the number of steps is known.
[[nodiscard]] std::string StepOfTotal(const v1::JobStatus& status);

// `1 worker`, `3 workers`.
[[nodiscard]] std::string Count(uint64_t number, const std::string& noun);
[[nodiscard]] std::string Seconds(double seconds);       // `40ms`, `3.1s`, `2m05s`
[[nodiscard]] std::string WholeSeconds(double seconds);  // `1s` at least
// [0, 1, 2, 5] is `0-2 5`.
[[nodiscard]] std::string Ranges(const google::protobuf::RepeatedField<uint32_t>& numbers);
// Local time: `2026-11-21 14:02:11`, and `14:02:11.123`.
[[nodiscard]] std::string DateAndTime(int64_t unix_ms);
[[nodiscard]] std::string TimeOfDay(int64_t unix_ms);
// Control characters as `\xNN`: text from elsewhere cannot move a cursor.
[[nodiscard]] std::string Printable(const std::string& text);
// Of a text of several lines, which travels as one (OneLine): the first line; and the others, each
// with its end.
[[nodiscard]] std::string FirstLine(const std::string& text);
[[nodiscard]] std::string OtherLines(const std::string& text);

}  // namespace ringmaster::cli
