// What a key of a job file may be, and what it is when it was left out: the (rules) of job.proto's
// fields (proto/ringmaster/v1/rules.proto), read by reflection. One key at a time: what depends on
// several stands in validate.cc and resolve.cc. Thread-safe (free functions).
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "common/status.h"
#include "ringmaster/v1/rules.pb.h"

namespace ringmaster::job {

[[nodiscard]] const v1::FieldRules& RulesOf(const google::protobuf::FieldDescriptor& field);

// What the rules allow, in words: `1 to 4096`, `above 0, under 1`, `a power of two, 1 to 8`; empty
// when the type alone says it.
[[nodiscard]] std::string RangeWords(const v1::FieldRules& rules);

// Every key that was left out and has a default gets it, also in the messages that are there. It
// checks nothing. For a JobSpec and its parts.
void FillDefaults(google::protobuf::Message* message);

// Required keys are there, one member of each oneof is, and every value is in its range.
// INVALID_ARGUMENT: `shards: expected 1 to 4096, got 0`.
[[nodiscard]] Status CheckRules(const google::protobuf::Message& message);

}  // namespace ringmaster::job
