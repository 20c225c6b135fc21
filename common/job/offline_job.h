// A job as its file says it, without a cluster and, unless a folder is named, without its data:
// what `ringworker tune`, `ringworker plan` and `ringctl model show` work on. Thread-safe (free
// functions).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::job {

// Reads and validates a job file; - is stdin. INVALID_ARGUMENT names file and line.
[[nodiscard]] StatusOr<v1::JobSpec> ReadJob(const std::string& file,
                                            const std::vector<std::string>& overrides);

// `spec` valid. FAILED_PRECONDITION: it runs a script, and what can be known of that. Without a
// data_root images are those that the format usually has, and a number of samples that the spec
// does not say (data.take, data.take_test) is that of one full batch.
[[nodiscard]] StatusOr<v1::ResultSpec> ResultWithoutCluster(v1::JobSpec spec,
                                                            const std::string& data_root);

// The same job with one shard of so many samples, of training and of evaluation.
[[nodiscard]] v1::ResultSpec WithShard(v1::ResultSpec result, uint32_t samples);

// Job, model, policy and images, in one line.
[[nodiscard]] std::string TitleOf(const v1::JobSpec& spec, const v1::ResultSpec& result);

}  // namespace ringmaster::job
