// S(k) as files, and back. The bytes are a function of (ResolvedJob, k): no time, host, job id,
// worker or generation. Free functions on values; the caller owns the state and its thread.
//
//   model.safetensors      parameters by name in canonical layout; <norm>/moving_mean,
//                          moving_variance
//   optimizer.safetensors  <parameter>/<slot>
//   state.safetensors      exponents/<parameter> (I16, one a block), step, updates, digest,
//                          loss_scale, good_steps, metrics/epoch, metrics/loss_sum,
//                          metrics/correct, metrics/samples
//   manifest.json          names, sizes and SHA-256 of those, step, digests; canonical JSON
#pragma once

#include <string>
#include <vector>

#include "common/sha256.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"
#include "worker/train/checkpoint_sink.h"
#include "worker/train/state.h"

namespace ringmaster::worker {

inline constexpr const char* kManifestName = "manifest.json";

// Copies the state into files, without a manifest: as quick as memory, so that training goes on.
[[nodiscard]] StatusOr<std::vector<CheckpointFile>> CopyState(const State& state);

// The reverse: sets all of `state`, whose layout is the job's. DATA_LOSS names the file or tensor
// that is missing, superfluous or of another shape; the state is garbage after an error.
Status SetState(const std::vector<CheckpointFile>& files, State* state);

// What a manifest says beside its files.
struct ManifestFacts {
  uint64_t step = 0;
  Sha256Digest digest{};         // digest(step)
  Sha256Digest result_digest{};  // of the result-determining part of the ResolvedJob
  bool exact = true;             // the bytes depend on the job alone
};
// Hashes the files and adds the manifest.
[[nodiscard]] Checkpoint Seal(const ManifestFacts& facts, std::vector<CheckpointFile> files);

// Checks manifest and files against each other. DATA_LOSS names the file and what differs.
[[nodiscard]] StatusOr<ManifestFacts> VerifyCheckpoint(const Checkpoint& checkpoint);

// Reads every file that the manifest in `folder` names, and verifies. NOT_FOUND, DATA_LOSS.
[[nodiscard]] StatusOr<Checkpoint> ReadCheckpointFolder(const std::string& folder);

// Verifies, then sets all of `state`, whose layout is the job's. FAILED_PRECONDITION when the
// checkpoint is another job's; DATA_LOSS names the tensor that is missing, superfluous or of
// another shape. The state is garbage after an error.
Status RestoreState(const Checkpoint& checkpoint, const v1::ResultSpec& spec, State* state);

}  // namespace ringmaster::worker
