// Why a job is in its state, which worker slows it, and what would help; made of what everyone may
// see. Pure; thread-safe (free functions).
#pragma once

#include <optional>

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

}  // namespace ringmaster::coordinator
