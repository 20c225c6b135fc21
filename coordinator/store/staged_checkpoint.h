// A checkpoint that is arriving: files in a temporary folder, hashed as they come, and in the end
// compared with their manifest. The temporary folder is removed on destruction unless it was
// renamed. Thread-compatible, used on the disk thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/files.h"
#include "common/sha256.h"
#include "common/status.h"
#include "coordinator/store/manifest.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::coordinator {

class StagedCheckpoint {
 public:
  // At most `max_bytes` of all files together.
  StagedCheckpoint(std::string temporary, std::string target, uint64_t step, uint64_t max_bytes);
  ~StagedCheckpoint();
  StagedCheckpoint(const StagedCheckpoint&) = delete;
  StagedCheckpoint& operator=(const StagedCheckpoint&) = delete;

  // Kept for as long as it lives, or until Release.
  void Hold(std::shared_ptr<const void> held) { held_ = std::move(held); }
  void Release() { held_.reset(); }

  // Pieces of a file come in order and files one after the other, manifest.json last.
  // INVALID_ARGUMENT: they do not, or are too many bytes; UNAVAILABLE: the disk. After an error the
  // object is spent.
  [[nodiscard]] Status Write(const v1::FilePiece& piece);
  // Compares all files with the manifest: names, sizes, SHA-256.
  [[nodiscard]] Status Finish();

  const std::string& temporary() const { return temporary_; }
  const std::string& target() const { return target_; }
  // After Finish.
  const Manifest& manifest() const { return manifest_; }
  const std::string& manifest_sha256() const { return manifest_sha256_; }

 private:
  [[nodiscard]] Status Begin(const std::string& name);
  [[nodiscard]] Status Append(const std::string& data);
  [[nodiscard]] Status End();

  const std::string temporary_;
  const std::string target_;
  const uint64_t step_;
  const uint64_t max_bytes_;
  std::shared_ptr<const void> held_;

  uint64_t all_bytes_ = 0;  // of all files
  std::string name_;        // of the open file; empty = none
  OwnedFile file_;
  uint64_t bytes_ = 0;  // of the open file
  Sha256 hash_;
  std::map<std::string, Manifest::File> files_;  // that are complete, without the manifest
  std::string manifest_text_;
  std::string manifest_sha256_;
  Manifest manifest_;
};

}  // namespace ringmaster::coordinator
