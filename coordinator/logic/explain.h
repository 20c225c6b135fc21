// Why a job is in its state, which worker slows it, and what would help; made of what everyone may
// see. It decides nothing. Pure; thread-safe (free functions).
#pragma once

#include <optional>
#include <string>

#include "coordinator/logic/action.h"
#include "ringmaster/v1/job.pb.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::coordinator {

// The answer to Jobs.Why.
[[nodiscard]] v1::WhyResponse Explain(const JobView& view);

// The worker that the others of a ring wait for, from the step times that they report. All members
// take the same wall time for a step, as they wait for each other; what tells them apart is who
// waits. It names nobody when nobody stands out, and decides nothing.
//
// The member that waits least at the ring, when the median of the others' waits is longer by more
// than a tenth of a step and 5 ms; the cause is what it spends most more on than their median:
// samples (`input`), kernels (`compute`) or its part of the ring (`link`). Nothing for fewer than
// two members that were measured, and when nothing of it is longer.
[[nodiscard]] std::optional<v1::Straggler> FindStraggler(const v1::JobStatus& status);

// The worker whose cores wait for samples for the largest part of a step, when that is more than a
// tenth, with how many threads would read and decode them as fast as its cores compute. It decides
// nothing.
[[nodiscard]] std::optional<v1::InputWait> FindInputWait(const v1::JobStatus& status);

// ---- what the steps would take ------------------------------------------------------------------

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
