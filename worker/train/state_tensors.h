// The state as named tensors in the three files of a checkpoint: the one list of what a checkpoint
// contains, used to write and to read. Free functions; the caller owns the state and its thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/status.h"
#include "worker/train/safetensors.h"
#include "worker/train/state.h"

namespace ringmaster::worker {

// The state's numbers, at addresses that views can point to.
struct Scalars {
  int64_t step = 0;
  int64_t updates = 0;
  int64_t loss_scale = 1;
  int64_t good_steps = 0;
  int64_t epoch = 0;
  double loss_sum = 0;
  int64_t correct = 0;
  int64_t samples = 0;
};
[[nodiscard]] Scalars ScalarsOf(const State& state);

// By file name. The views point into `state` and `scalars`.
[[nodiscard]] std::map<std::string, TensorViews> TensorsOf(const State& state,
                                                           const Scalars& scalars);

// The reverse: copies everything into `state`. DATA_LOSS names file and tensor when one is missing,
// superfluous, or of another type or shape.
Status SetTensors(const std::map<std::string, TensorViews>& files, State* state);

}  // namespace ringmaster::worker
