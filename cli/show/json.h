// What -o json prints: names as in the protos, numbers as numbers, every field always present, null
// where there is no value yet. Times are whole milliseconds and end in `_ms`, sizes are bytes and
// end in `_bytes`, states are upper case. Values in, values out; thread-safe (free functions).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::cli {

using Json = nlohmann::ordered_json;

[[nodiscard]] Json ToJson(const v1::JobStatus& status);
[[nodiscard]] Json ToJson(const v1::JobSpec& spec);  // as a job file: only what is set
[[nodiscard]] Json ToJson(const v1::CheckpointRef& checkpoint);
[[nodiscard]] Json ToJson(const v1::CheckpointSource& source);
[[nodiscard]] Json ToJson(const v1::WorkerStatus& worker);
[[nodiscard]] Json ToJson(const v1::ListResponse& jobs);                    // {"jobs": [...]}
[[nodiscard]] Json ToJson(const v1::ListWorkersResponse& workers);          // {"workers": [...]}
[[nodiscard]] Json ToJson(const v1::ListCheckpointsResponse& checkpoints);  // {"checkpoints": ...}
[[nodiscard]] Json ToJson(const v1::VerifyCheckpointsResponse& checked);    // {"checkpoints": ...}
[[nodiscard]] Json ToJson(const v1::Failure& failure);
[[nodiscard]] Json ToJson(const v1::Regroup& regroup);
[[nodiscard]] Json ToJson(const v1::Straggler& straggler);
[[nodiscard]] Json ToJson(const v1::InputWait& wait);
[[nodiscard]] Json ToJson(const std::string& job_id, const v1::WhyResponse& why);
[[nodiscard]] Json ToJson(const v1::Event& event);
[[nodiscard]] Json ToJson(const std::string& job_id, const v1::ListEventsResponse& events);
[[nodiscard]] Json ToJson(const v1::LogLine& line);

[[nodiscard]] Json ToJson(const google::protobuf::RepeatedPtrField<std::string>& values);

// The value when it is known, else null.
template <typename T>
[[nodiscard]] Json Known(bool known, const T& value) {
  return known ? Json(value) : Json(nullptr);
}

}  // namespace ringmaster::cli
