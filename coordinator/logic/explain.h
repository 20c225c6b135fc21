// Why a job is in its state, and what would help: the answer to Jobs.Why, made of what everyone may
// see. Pure; thread-safe (free functions).
#pragma once

#include <string>
#include <vector>

#include "coordinator/logic/action.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::coordinator {

[[nodiscard]] v1::WhyResponse Explain(const JobView& view);

}  // namespace ringmaster::coordinator
