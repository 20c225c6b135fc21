// Losses and measures by name, and which samples they are of. Thread-safe (free functions).
#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::job {

using Metrics = google::protobuf::RepeatedPtrField<v1::Metric>;

// The order in which people see them.
inline constexpr v1::SampleSplit kSplits[] = {v1::SAMPLE_SPLIT_TRAIN, v1::SAMPLE_SPLIT_VALIDATION,
                                              v1::SAMPLE_SPLIT_TEST};

// train, validation, test.
[[nodiscard]] std::string NameOf(v1::SampleSplit split);

// nullptr when it is not known, or not finite.
[[nodiscard]] const v1::Metric* Find(const Metrics& metrics, v1::SampleSplit split,
                                     std::string_view name);

// What checkpoint.best and stop say; nothing of a job that watches no metric. INVALID_ARGUMENT: a
// text is no SPLIT/METRIC, or stop has none.
[[nodiscard]] StatusOr<std::vector<v1::Watch>> WatchesOf(const v1::JobSpec& spec);
// With what the model knows: whether it has such a metric, and which way it points.
[[nodiscard]] StatusOr<std::vector<v1::Watch>> ResolveWatches(const v1::JobSpec& spec,
                                                              const v1::ResultSpec& result);

// checkpoint.best's, or an empty one.
[[nodiscard]] const v1::Watch& BestWatch(const v1::ResultSpec& result);
// stop's, or an empty one.
[[nodiscard]] const v1::Watch& StopWatch(const v1::ResultSpec& result);

}  // namespace ringmaster::job
