// What a training step of a model costs by the usual count, whatever kernels really do: 2 FLOPs for
// each multiply-add of convolutions and dense layers, windows counted whole where they hang over
// the border; nothing for the rest. And what devices can do at most. Thread-safe (free functions).
#pragma once

#include <optional>
#include <string>

#include "common/graph/program.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::bench {

// Of one sample.
struct ModelFlops {
  double forward = 0;
  double training = 0;  // forward and backward: 3 x forward, less the first layer's input gradient
};

// `training`: a program of that mode.
[[nodiscard]] ModelFlops CountFlops(const graph::Program& training);

// Dense peak in TFLOP/s by the device's data sheet, nothing when it is not in the table: for
// bfloat16 and float16 that of tensor cores, for float32 that of plain FMA.
[[nodiscard]] std::optional<double> PeakTflops(const std::string& device_model, v1::Policy policy);

}  // namespace ringmaster::bench
