// A story about the coordinator's logic: one event a line, and below it, indented, what the logic
// decided. PlayScenario plays the events again and writes the whole story anew, so that a test is a
// comparison of two texts. Thread-compatible.
//
//   show notes                   what else is told: notes, saves; hide takes it back
//   given running j0001 on=a,b   plays what leads there and tells nothing of it (scenario_given.h)
//   given attach c cores=2       so does `given` with any other command
//   attach d                     worker d opens its session and attaches
//     send d: attached ...       what came of it
//   submit k2 min=2              a client submits a job with idempotency key k2
//
// A command about workers may name several: `attach a,b`, `attach a..h`. See Player in scenario.cc
// for all commands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ringmaster::coordinator {

struct Telling {
  // What is hidden and what `given` plays, too, and each message by itself.
  bool everything = false;
  // This limit of the coordinator (options.h) is twice as large.
  std::string stretched = {};
  // Counts how often each of kTransitions was taken; may be null.
  std::vector<uint64_t>* taken = nullptr;
};

// The story as the logic tells it now. Lines that begin with '#' and empty lines stay. What is no
// command, or cannot be played, is thrown.
[[nodiscard]] std::string PlayScenario(const std::string& text, const Telling& telling = {});

}  // namespace ringmaster::coordinator
