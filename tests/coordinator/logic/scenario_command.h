// One line of a story, taken apart. A value; thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/job/class_map.h"
#include "coordinator/logic/event.h"
#include "coordinator/logic/options.h"
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

// `a,b`, and a range of letters: `a..h,x`; and back, with ranges of four and more.
[[nodiscard]] std::vector<std::string> NamesIn(const std::string& list);
[[nodiscard]] std::string List(const std::vector<std::string>& names);

// A limit of the coordinator (options.h) by its name; milliseconds where it is a time.
[[nodiscard]] std::vector<std::string> LimitNames();
void SetLimit(Options* options, const std::string& name, int64_t value);
[[nodiscard]] int64_t GetLimit(Options* options, const std::string& name);

// `... cores=2 class=avx512 python=default,conda`; `job=j0001 applied=4 snapshot=4`: with what it
// holds. Of a job its maps in `class_maps`, by job, but for maps=others.
[[nodiscard]] v1::Attach ParseAttach(const Command& command,
                                     const std::map<std::string, job::ClassMaps>& class_maps);
// `submit k1 min=2 steps=20`; `submit k2 like=j0001`; `submit k3 script=train.py python=conda`,
// which has no batch, shards and steps that it does not say; files=none: it comes without.
[[nodiscard]] SubmitAsked ParseSubmit(const Command& command);

// `... applied=4 total=100 compute=80`: the digest is d4, unless `digest` or `digests` says
// otherwise. `ended=10 loss=0.5`: with the lasting metrics of the epoch that ended with that step.
[[nodiscard]] v1::Progress ParseProgress(const Command& command);

// `... job=j0001 phase=compute`; `generation=1.2 applied=4`: of that run; `fetched=3 of=200
// from=NAME`: it fetches data, so many MiB are there.
[[nodiscard]] v1::Heartbeat ParseHeartbeat(const Command& command);

// `... code=MEMORY`: of FailureCode
[[nodiscard]] v1::FailureCode ParseCode(const Command& command);

// `... error="..." sha=other file=NAME classes=10`: of the second of its files; `init=a`: with
// weights of SHA-256 aaa... Of a job that runs a script: `torch=2.0.1 initial=b tensors=3 batch=16
// shards=2 steps=20`, facts=none.
[[nodiscard]] v1::Inspected ParseInspected(const Command& command,
                                           const std::set<std::string>& scripts);
// `... sha=other digest=d1 seconds=0.5 follows=yes`, of so many cores unless it is said.
[[nodiscard]] v1::Prepared ParsePrepared(const Command& command, uint64_t cores);

// `... applied=4 folded=0,1 evaluated=yes`, `... applied=10 manifest=m10`: the digest is d4, d10.
[[nodiscard]] v1::FenceAck ParseFenced(const Command& command);
[[nodiscard]] v1::JobFinished ParseFinished(const Command& command);
[[nodiscard]] v1::Joined ParseJoined(const Command& command);
[[nodiscard]] v1::StateSaved ParseSaved(const Command& command);

// `... peer=b step=4`
[[nodiscard]] v1::Suspicion ParseSuspicion(const Command& command);

// `... step=4`: the checkpoint of that step; `step=4 last=12 count=3`: so many, from 4 to 12.
[[nodiscard]] v1::CheckpointsDropped ParseDropped(const Command& command);

// `found j0001 step=8`, of job=j0001 and with digest=d8 and sha=m8 unless it is said; without
// step none verified. skipped="what is wrong with the newest|with the next one"
[[nodiscard]] CheckpointFound ParseFound(const Command& command);

}  // namespace ringmaster::coordinator
