// What `ringctl bench` prints. Values in, text or JSON out; thread-safe (free functions).
#pragma once

#include <string>

#include "cli/show/json.h"
#include "cli/show/terminal.h"
#include "ringmaster/v1/bench.pb.h"

namespace ringmaster::cli {

// A table of links, then one of sizes with a line for each kind of sum. GB are 10^9 bytes.
[[nodiscard]] std::string RenderBench(const v1::AllReduceReport& report, const Terminal& terminal);
[[nodiscard]] Json ToJson(const v1::AllReduceReport& report);

}  // namespace ringmaster::cli
