// What a dataset of a format usually is, where there is none to look at. Thread-safe (a free
// function).
#pragma once

#include <string>

#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::data {

// Format, classes and image shape as its publishers distribute it; no files and no counts.
// INVALID_ARGUMENT names the formats.
[[nodiscard]] StatusOr<v1::DatasetFacts> UsualFacts(const std::string& format);

}  // namespace ringmaster::data
