// A checkpoint on its way from the coordinator into a folder: written under temporary names,
// verified against its manifest, then renamed as a whole. Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/files.h"
#include "common/sha256.h"
#include "common/status.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::cli {

struct DownloadedFile {
  std::string name;
  uint64_t bytes = 0;
  std::string sha256;  // lower-case hex
};

class CheckpointDownload {
 public:
  // Creates `folder` when it is missing, and removes what a download that was killed left there.
  // `manifest_sha256` is what manifest.json must have.
  static StatusOr<CheckpointDownload> Create(const std::string& folder,
                                             const std::string& manifest_sha256);
  // Removes what was not committed.
  ~CheckpointDownload();
  CheckpointDownload(CheckpointDownload&& other) noexcept;
  CheckpointDownload& operator=(CheckpointDownload&&) = delete;

  // Pieces in order, files one after the other; DATA_LOSS for anything else, INVALID_ARGUMENT for a
  // name that is not a plain file name.
  [[nodiscard]] Status Add(const v1::FilePiece& piece);

  // Every file of the manifest must be there with its SHA-256, and no other: DATA_LOSS. A file that
  // the folder already has is left alone when it is equal; ALREADY_EXISTS when it is not, and then
  // nothing changes. Returns the files, durable, manifest.json last.
  [[nodiscard]] StatusOr<std::vector<DownloadedFile>> Commit();

  // Likewise, but of the files only those of weights, each as `convert` makes it of its bytes.
  using Convert = std::function<StatusOr<std::string>(const std::string& bytes)>;
  [[nodiscard]] StatusOr<std::vector<DownloadedFile>> CommitWeights(const Convert& convert);

 private:
  CheckpointDownload(std::string folder, std::string manifest_sha256);
  [[nodiscard]] Status Open(const std::string& name);
  [[nodiscard]] Status Close();
  [[nodiscard]] Status Verify() const;
  [[nodiscard]] Status CheckExisting() const;
  [[nodiscard]] StatusOr<std::vector<DownloadedFile>> Publish();
  [[nodiscard]] std::string PathOf(const std::string& name) const;
  [[nodiscard]] std::string TemporaryOf(const std::string& name) const;

  const std::string folder_;
  const std::string manifest_sha256_;

  std::vector<DownloadedFile> files_;  // the last one is still growing when file_ is open
  OwnedFile file_;
  Sha256 hash_;
};

}  // namespace ringmaster::cli
