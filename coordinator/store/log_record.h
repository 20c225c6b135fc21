// One stored log line as it stands in a file of the log folder. Pure; thread-safe.
//
//   ORDINAL LOST SPOOL NUMBER UNIX_MS LEVEL TEXT\n   TEXT with `\` and line breaks escaped
//
// The ordinal counts the lines of one worker in one job from 1, those that were lost before they
// came here too: whatever a file has lost, two neighbouring lines say how many stood between them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::coordinator {

struct LogRecord {
  uint64_t ordinal = 0;
  uint64_t lost = 0;  // of the ordinals before this one, those that never came here
  std::string spool;
  v1::SpooledLine line;  // without job id
};

// With its line break.
[[nodiscard]] std::string FormatRecord(const LogRecord& record);
// Without its line break; nullopt: not a record.
[[nodiscard]] std::optional<LogRecord> ParseRecord(const std::string& text);

}  // namespace ringmaster::coordinator
