// A checkpoint as a coordinator has it, and its pieces. Thread-safe (free functions).
#pragma once

#include <string>
#include <vector>

#include "ringmaster/v1/fleet.pb.h"
#include "worker/state/checkpoint.h"
#include "worker/state/manifest.h"

namespace ringmaster::worker {

// Of step 40: a file of 2 MiB and 5 bytes, an empty one, a small one, the manifest.
inline Checkpoint SomeCheckpoint() {
  ManifestFacts facts;
  facts.step = 40;
  facts.digest.fill(4);
  facts.result_digest.fill(5);
  return Seal(facts, {{"model.safetensors", std::string((2 << 20) + 5, 'm')},
                      {"optimizer.safetensors", ""},
                      {"state.safetensors", "state of step 40"}});
}

inline v1::CheckpointSource SourceOf(const Checkpoint& checkpoint) {
  v1::CheckpointSource source;
  source.set_job_id("job-1");
  source.set_step(checkpoint.step);
  source.set_manifest_sha256(checkpoint.manifest_sha256);
  return source;
}

inline std::vector<v1::FilePiece> PiecesOf(const Checkpoint& checkpoint) {
  std::vector<v1::FilePiece> pieces;
  for (const CheckpointFile& file : checkpoint.files) {
    size_t offset = 0;
    do {
      v1::FilePiece& piece = pieces.emplace_back();
      piece.set_name(file.name);
      piece.set_offset(offset);
      piece.set_bytes(file.bytes.size());
      piece.set_data(file.bytes.substr(offset, 1 << 20));
      offset += piece.data().size();
      piece.set_last(offset == file.bytes.size());
    } while (offset < file.bytes.size());
  }
  return pieces;
}

inline bool Same(const Checkpoint& a, const Checkpoint& b) {
  if (a.files.size() != b.files.size()) return false;
  for (size_t i = 0; i < a.files.size(); ++i) {
    if (a.files[i].name != b.files[i].name || a.files[i].bytes != b.files[i].bytes) return false;
  }
  return a.step == b.step && a.manifest_sha256 == b.manifest_sha256;
}

}  // namespace ringmaster::worker
