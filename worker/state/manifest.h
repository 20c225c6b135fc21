// The manifest of a checkpoint: what its files are, and of which state. Written when it is sealed,
// compared with the files wherever it is read. Values; thread-safe (free functions).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/sha256.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"
#include "worker/state/checkpoint_sink.h"

namespace ringmaster::worker {

inline constexpr const char* kManifestName = "manifest.json";

// What a manifest says beside its files.
struct ManifestFacts {
  uint64_t step = 0;
  Sha256Digest digest{};         // digest(step)
  Sha256Digest result_digest{};  // of the result-determining part of the ResolvedJob
  std::string model_digest;      // hex, of its graph alone
  bool exact = true;             // the bytes depend on the job alone
  v1::ContinueFacts continues;   // step 0: it began with S(0)
  // By which the state was computed.
  google::protobuf::RepeatedPtrField<v1::ClassMap> class_maps;
};
// Hashes the files and adds the manifest.
[[nodiscard]] Checkpoint Seal(const ManifestFacts& facts, std::vector<CheckpointFile> files);

// Checks manifest and files against each other. DATA_LOSS names the file and what differs.
[[nodiscard]] StatusOr<ManifestFacts> VerifyCheckpoint(const Checkpoint& checkpoint);

// Reads every file that the manifest in `folder` names, and verifies. NOT_FOUND, DATA_LOSS.
[[nodiscard]] StatusOr<Checkpoint> ReadCheckpointFolder(const std::string& folder);

}  // namespace ringmaster::worker
