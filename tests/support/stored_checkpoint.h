// A small checkpoint in a coordinator's folder, and how it is damaged there. Thread-compatible.
#pragma once

#include <fstream>
#include <string>

#include "common/check.h"
#include "coordinator/store/checkpoint_folder.h"
#include "tests/support/fake_checkpoint.h"

namespace ringmaster::testing {

inline v1::CheckpointRef StoreCheckpoint(const coordinator::CheckpointFolder& folder,
                                         const std::string& job, const FakeCheckpoint& checkpoint) {
  auto staged = folder.Stage(JobId(job), checkpoint.step, 64 << 20);
  RING_CHECK(staged.ok(), "a place to write to");
  for (const v1::FilePiece& piece : PiecesOf(checkpoint)) {
    RING_CHECK((*staged)->Write(piece).ok(), "it is written");
  }
  RING_CHECK((*staged)->Finish().ok(), "it is as its manifest says");
  const StatusOr<std::string> path = folder.Commit(**staged);
  RING_CHECK(path.ok(), "it is in its place");
  v1::CheckpointRef ref;
  ref.set_path(*path);
  ref.set_step(checkpoint.step);
  ref.set_sha256(checkpoint.manifest_sha256());
  return ref;
}

// One byte of its weights.
inline void Damage(const v1::CheckpointRef& ref) {
  std::fstream(ref.path() + "/model.safetensors", std::ios::in | std::ios::out) << "W";
}

}  // namespace ringmaster::testing
