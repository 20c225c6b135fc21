// S(k) as files, and back; and the one list of what these contain.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/safetensors.h"
#include "common/sha256.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"
#include "worker/state/checkpoint_sink.h"
#include "worker/state/state.h"

namespace ringmaster::worker {

// The state as named tensors in the files of a checkpoint: the one list of what a checkpoint
// contains, used to write and to read. Free functions; the caller owns the state and its thread.

// The state's numbers, at addresses that views can point to.
struct Scalars {
  int64_t step = 0;
  int64_t updates = 0;
  int64_t loss_scale = 1;
  int64_t good_steps = 0;
  int64_t epoch = 0;
  int64_t samples = 0;
  // Of the layout's scalars, each in both types.
  std::vector<double> sums;
  std::vector<int64_t> counts;
  std::vector<int64_t> counters;        // of the layout
  std::array<uint8_t, 16> link_sums{};  // D of the step before
  // Of each watched metric: looked, best_step, stale; best, reference.
  std::vector<std::array<int64_t, 3>> watch_counts;
  std::vector<std::array<double, 2>> watch_values;
};
[[nodiscard]] Scalars ScalarsOf(const State& state);

// By file name. The views point into `state` and `scalars`.
[[nodiscard]] std::map<std::string, TensorViews> TensorsOf(const State& state,
                                                           const Scalars& scalars);

// The reverse: copies into `state` what does not lie there already. DATA_LOSS names file and tensor
// when one is missing, superfluous, or of another type or shape; or says that the digest is of
// another state, which is hashed by `for_each`.
Status SetTensors(const std::map<std::string, TensorViews>& files, State* state,
                  const ForEachPiece& for_each = &OneAfterAnother);

// Of state.safetensors alone: numbers and exponents. DATA_LOSS likewise; nothing is hashed.
Status SetNumbers(const TensorViews& rest, State* state);

// S(k) as files, and back. The bytes are a function of (ResolvedJob, k): no time, host, job id,
// worker or generation. Free functions on values; the caller owns the state and its thread.
//
//   model.safetensors      parameters by name in canonical layout; <norm>/moving_mean,
//                          moving_variance
//   optimizer.safetensors  <parameter>/<slot>
//   ema.safetensors        as model.safetensors, with the average of each parameter; only of a job
//                          that has one
//   state.safetensors      exponents/<parameter> (I16, one a block), step, updates, digest,
//                          loss_scale, good_steps; digest_before, class_maps and sums, from which
//                          and the state itself the digest follows; of the epoch so far: epoch,
//                          samples, metrics/<output>, the sum of its scalar (I64 a count, F64 a
//                          real value); of each watched metric watch/<split>/<metric>/looked,
//                          best_step, stale (I64), best, reference (F64)
//   predictions.safetensors  of a job that predicts: its rows by name, (samples so far, ...)
//   manifest.json          names, sizes and SHA-256 of those, step, digests (of the state, the
//                          result and the model); of a job that continues another one step and
//                          manifest SHA-256 of the checkpoint that it went on with; canonical JSON

inline constexpr const char* kRestOfState = "state.safetensors";

// Copies the state into files, without a manifest: as quick as memory, so that training goes on.
[[nodiscard]] StatusOr<std::vector<CheckpointFile>> CopyState(const State& state);

// The reverse: sets all of `state`, whose layout is the job's. DATA_LOSS names the file or tensor
// that is missing, superfluous or of another shape; the state is garbage after an error.
Status SetState(const std::vector<CheckpointFile>& files, State* state);

// Verifies, then sets all of `state`, whose layout is the job's; of a checkpoint that the job
// continues, of what was watched only what it watches, too. FAILED_PRECONDITION when the
// checkpoint is another job's, and not the one that the job continues; DATA_LOSS names the tensor
// that is missing, superfluous or of another shape. The state is garbage after an error.
Status RestoreState(const Checkpoint& checkpoint, const v1::ResultSpec& spec, State* state);

}  // namespace ringmaster::worker
