// What must be equal on every worker of a job, and in what two of them differ. Pure; thread-safe
// (free functions). Every function returns OK, or FAILED_PRECONDITION naming both workers.
#pragma once

#include <string>

#include "common/status.h"
#include "ringmaster/v1/fleet.pb.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::coordinator {

// One worker's word on something.
template <typename T>
struct Claim {
  const std::string& worker;
  const T& value;
};

// The datasets: names the first file that differs, or the first fact.
[[nodiscard]] Status SameDataset(Claim<v1::DatasetFacts> a, Claim<v1::DatasetFacts> b);

// The job's known shard, and what a worker computed: on every core, then digest(0).
[[nodiscard]] Status SameKnownShard(const v1::KnownShard& expected, Claim<v1::Prepared> b);

// digest(step).
[[nodiscard]] Status SameDigest(uint64_t step, Claim<std::string> a, Claim<std::string> b);

// Lower-case hex of raw bytes.
[[nodiscard]] std::string HexOf(const std::string& bytes);

}  // namespace ringmaster::coordinator
