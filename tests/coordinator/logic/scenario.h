// A story about the coordinator's logic: one event a line, and below it, indented, what the logic
// decided. Run() plays the events again and writes the whole story anew, so that a test is a
// comparison of two texts. Thread-compatible.
//
//   attach a cores=2          worker a opens its session and attaches
//   submit k1 min=2           a client submits a job with idempotency key k1
//     send a: inspect j0001   what came of it
//
// A command about workers may name several: `attach a,b`. See Player in scenario.cc for all
// commands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ringmaster::coordinator {

// The story as the logic tells it now. Lines that begin with '#' and empty lines stay.
// `taken` counts how often each of kTransitions was.
[[nodiscard]] std::string PlayScenario(const std::string& text,
                                       std::vector<uint64_t>* taken = nullptr);

}  // namespace ringmaster::coordinator
