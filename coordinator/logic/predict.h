// What the steps of a job would take on other workers, from what everyone may see of it: without
// whom it would be faster, and what one more would bring. It decides nothing. Pure; thread-safe
// (free functions).
#pragma once

#include <string>

#include "ringmaster/v1/job.pb.h"

namespace ringmaster::coordinator {

// Sets JobWorker.faster_without of the status's workers, from their step times and shard_seconds,
// as soon as every member of the ring has both. Compared are steps whose shards are dealt by speed,
// with all members and without the slowest ones; a class keeps one member, as the result depends on
// which classes there are. What is beside the shards stays as long as it is, but a worker that is
// alone has no ring to wait for.
void PredictWithout(v1::JobStatus& status);

// `without b this job would be 361% faster, but workers.min needs it`; empty: without nobody.
[[nodiscard]] std::string DescribeWithout(const v1::JobStatus& status);

// What must be done so that the job goes on when this member of its ring leaves it; empty: nothing.
[[nodiscard]] std::string NeededToLeave(const v1::JobStatus& status, const v1::JobWorker& member);

// The smallest change by which a step's shards are done sooner: so many more workers, or what lets
// one join.
[[nodiscard]] std::string AdviseMore(const v1::JobStatus& status);

}  // namespace ringmaster::coordinator
