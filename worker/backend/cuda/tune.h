// Finds the quickest kernel for the convolutions and products of a program, by timing: what
// cuda_tune does before any job, and no job ever does. Used on the thread on which its GPU is
// current.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "common/graph/program.h"
#include "common/status.h"
#include "worker/backend/cuda/device.h"
#include "worker/backend/cuda/plan_table.h"

namespace ringmaster::cuda {

// What the kernel table should say of one node, and how long a launch of it takes, own kernels
// round it included.
struct Tuned {
  PlanKey key;
  PlanChoice choice;
  int candidates = 0;       // that ran
  double microseconds = 0;  // of the choice
  double untuned = 0;       // of what is chosen without a table
};

// Whether a gradient of weights that is rounded to 16 bits on its way may win by its speed.
enum class GradientBits : uint8_t { kKept, kMayBeRounded };

// Of each convolution and product of the program that `table` has no row for, into `table`; a
// candidate that does not give the same bits in two runs is left out. `report` gets each result.
[[nodiscard]] Status Tune(const graph::Program& program, const Device& device,
                          GradientBits gradient_bits, PlanTable* table,
                          const std::function<void(const Tuned&)>& report);

}  // namespace ringmaster::cuda
