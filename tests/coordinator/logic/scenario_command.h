// One line of a story, taken apart. A value; thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::coordinator {

// `verb subject key=value ...`; a value with blanks stands in double quotes.
struct Command {
  std::string verb, subject;
  std::map<std::string, std::string> options;

  std::string Text(const std::string& key, const std::string& otherwise) const {
    const auto found = options.find(key);
    return found == options.end() ? otherwise : found->second;
  }
  uint64_t Number(const std::string& key, uint64_t otherwise) const {
    return std::stoull(Text(key, std::to_string(otherwise)));
  }
  double Real(const std::string& key, double otherwise) const {
    return options.contains(key) ? std::stod(options.at(key)) : otherwise;
  }
};

[[nodiscard]] Command ParseCommand(const std::string& line);

// `... applied=4 total=100 compute=80`: the digest is d4, unless `digest` or `digests` says
// otherwise. `ended=10 loss=0.5`: with the lasting metrics of the epoch that ended with that step.
[[nodiscard]] v1::Progress ParseProgress(const Command& command);

// `... job=j0001 phase=compute`; `fetched=3 of=200 from=NAME`: it fetches data, so many MiB are
// there.
[[nodiscard]] v1::Heartbeat ParseHeartbeat(const Command& command);

// `... code=MEMORY`: of FailureCode
[[nodiscard]] v1::FailureCode ParseCode(const Command& command);

// `... error="..." sha=other file=NAME classes=10`: of the second of its files
[[nodiscard]] v1::Inspected ParseInspected(const Command& command);
[[nodiscard]] v1::Joined ParseJoined(const Command& command);
[[nodiscard]] v1::StateSaved ParseSaved(const Command& command);

// `... peer=b step=4`
[[nodiscard]] v1::Suspicion ParseSuspicion(const Command& command);

// `... step=4`: the checkpoint of that step; `step=4 last=12 count=3`: so many, from 4 to 12.
[[nodiscard]] v1::CheckpointsDropped ParseDropped(const Command& command);

}  // namespace ringmaster::coordinator
