// What `ringctl check` prints. Values in, text or JSON out; thread-safe (free functions).
#pragma once

#include <string>

#include "cli/check.h"
#include "cli/show/json.h"
#include "cli/show/terminal.h"

namespace ringmaster::cli {

// Whether nothing failed.
[[nodiscard]] bool AllGood(const Findings& findings);
// A line for each, one below it for what to do, and how many there are of each verdict.
[[nodiscard]] std::string RenderFindings(const Findings& findings, const Terminal& terminal);
[[nodiscard]] Json ToJson(const Findings& findings);  // {"ok": ..., "findings": [...]}

}  // namespace ringmaster::cli
