// Finds the quickest kernel for the convolutions and products of a program, by timing: what
// `ringctl tune` does before any job, and no job ever does. Used on the thread on which its GPU is
// current.
#pragma once

#include "common/graph/program.h"
#include "common/status.h"
#include "worker/backend/backend.h"
#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/libraries/plan_table.h"

namespace ringmaster::cuda {

// Of each convolution and product of the program that `table` has no row for, into `table`; those
// on which the program spends most of its time come first, and what is not reached in
// `options.seconds` stays without a row. A candidate that does not give the same bits in two runs
// is left out. `report` gets each result, as soon as its row is in the table; its times are those
// of a launch with the own kernels round it.
[[nodiscard]] Status Tune(const graph::Program& program, const Device& device,
                          const TuneOptions& options, PlanTable* table, const TuneReport& report);

}  // namespace ringmaster::cuda
