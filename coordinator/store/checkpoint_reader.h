// Reads one checkpoint piece by piece, manifest.json last, and checks every file against the
// manifest on the way. Thread-compatible, used on the disk thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/files.h"
#include "common/sha256.h"
#include "common/status.h"
#include "coordinator/store/manifest.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::coordinator {

class CheckpointReader {
 public:
  // `sha256`: of manifest.json, as the store has it. ABORTED: it was removed meanwhile; DATA_LOSS:
  // the folder does not hold what was stored.
  [[nodiscard]] static StatusOr<std::unique_ptr<CheckpointReader>> Open(const std::string& path,
                                                                        const std::string& sha256);

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }

  // The next piece, at most 1 MiB; nullopt after the last. A file that differs from the manifest is
  // DATA_LOSS before its last piece.
  [[nodiscard]] StatusOr<std::optional<v1::FilePiece>> Next();

 private:
  struct File {
    std::string name;
    OwnedFile opened;
    Manifest::File expected;
  };
  explicit CheckpointReader(std::string path) : path_(std::move(path)) {}
  [[nodiscard]] Status Add(const std::string& name, const Manifest::File& expected);

  const std::string path_;
  Manifest manifest_;
  std::vector<File> files_;  // all open: one that is removed meanwhile is still read to its end
  size_t current_ = 0;
  uint64_t offset_ = 0;
  Sha256 hash_;
};

}  // namespace ringmaster::coordinator
