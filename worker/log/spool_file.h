// The disk format of the spool: one text line a log line, in segments named after their first
// number and their spool. Pure; thread-safe (free functions).
//
//   FIRST-SPOOL.log   20 decimal digits, 32 hex digits
//   NUMBER UNIX_MS LEVEL JOB TEXT\n   TEXT with `\` and line breaks escaped
//   state             SPOOL ACKNOWLEDGED NEXT\n, of fixed width, overwritten in place
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::worker {

struct SegmentName {
  uint64_t first = 0;
  std::string spool;
  [[nodiscard]] std::string ToString() const;
};
// nullopt: a file that is no segment.
[[nodiscard]] std::optional<SegmentName> ParseSegmentName(const std::string& name);

// With its line break.
[[nodiscard]] std::string FormatLine(const v1::SpooledLine& line);
// Without its line break; nullopt: not a line.
[[nodiscard]] std::optional<v1::SpooledLine> ParseLine(const std::string& text);

struct SpoolState {
  std::string spool;
  uint64_t acknowledged = 0;
  uint64_t next = 1;  // number of the next line, at least
};
[[nodiscard]] std::string FormatState(const SpoolState& state);
[[nodiscard]] std::optional<SpoolState> ParseState(const std::string& text);

}  // namespace ringmaster::worker
