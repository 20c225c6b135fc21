// Losses and measures by name, and which samples they are of. Thread-safe (free functions).
#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <string>
#include <string_view>

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

// `test/accuracy`, without what only the model knows: whether it has such a metric, and which way
// it points. INVALID_ARGUMENT says what is expected.
[[nodiscard]] StatusOr<v1::BestMetric> ParseBest(const std::string& text);

}  // namespace ringmaster::job
