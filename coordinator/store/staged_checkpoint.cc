#include "coordinator/store/staged_checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "common/files.h"
#include "coordinator/store/data_folder.h"

namespace ringmaster::coordinator {
namespace {

// There are about five. Who reads a checkpoint has all of them open, and others may at the same
// time.
constexpr size_t kMaxFiles = 32;

}  // namespace

StagedCheckpoint::StagedCheckpoint(std::string temporary, std::string target, uint64_t step,
                                   uint64_t max_bytes)
    : temporary_(std::move(temporary)),
      target_(std::move(target)),
      step_(step),
      max_bytes_(max_bytes) {}

StagedCheckpoint::~StagedCheckpoint() {
  file_.Close();
  std::error_code ignored;  // what stays behind is swept at the next start
  std::filesystem::remove_all(temporary_, ignored);
}

Status StagedCheckpoint::Write(const v1::FilePiece& piece) {
  if (!manifest_sha256_.empty()) {
    return InvalidArgument("file {} comes after {}, which must be the last", piece.name(),
                           kManifestName);
  }
  if (name_.empty()) RING_RETURN_IF_ERROR(Begin(piece.name()));
  if (piece.name() != name_) {
    return InvalidArgument("file {} begins before file {} has ended", piece.name(), name_);
  }
  if (piece.offset() != bytes_) {
    return InvalidArgument("file {}: a piece at offset {}, expected {}", name_, piece.offset(),
                           bytes_);
  }
  RING_RETURN_IF_ERROR(Append(piece.data()));
  return piece.last() ? End() : absl::OkStatus();
}

Status StagedCheckpoint::Begin(const std::string& name) {
  if (!IsPlainFileName(name)) return InvalidArgument("a file may not be called \"{}\"", name);
  if (files_.contains(name)) return InvalidArgument("file {} comes twice", name);
  if (files_.size() >= kMaxFiles) return InvalidArgument("more than {} files", kMaxFiles);
  const std::string path = temporary_ + "/" + name;
  file_ = OwnedFile(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file_.valid()) return DiskError("create", path);
  name_ = name;
  bytes_ = 0;
  return absl::OkStatus();
}

Status StagedCheckpoint::Append(const std::string& data) {
  if (data.size() > max_bytes_ - all_bytes_) {
    return InvalidArgument(
        "file {} at byte {}: a checkpoint of this job has at most {} bytes, half "
        "as much again as its state",
        name_, bytes_, max_bytes_);
  }
  all_bytes_ += data.size();
  if (!WriteAll(file_.get(), data)) return DiskError("write", temporary_ + "/" + name_);
  hash_.Update(data);
  bytes_ += data.size();
  if (name_ != kManifestName) return absl::OkStatus();
  manifest_text_ += data;
  if (manifest_text_.size() <= kMaxManifestBytes) return absl::OkStatus();
  return InvalidArgument("{} has more than {} bytes", kManifestName, kMaxManifestBytes);
}

Status StagedCheckpoint::End() {
  // An fsync that failed is never tried again: the kernel has dropped the pages.
  if (fsync(file_.get()) != 0) return DiskError("fsync", temporary_ + "/" + name_);
  file_.Close();
  const std::string sha256 = Hex(hash_.Finish());
  if (name_ == kManifestName) {
    manifest_sha256_ = sha256;
  } else {
    files_[name_] = {bytes_, sha256};
  }
  name_.clear();
  return absl::OkStatus();
}

Status StagedCheckpoint::Finish() {
  if (manifest_sha256_.empty()) {
    return InvalidArgument("the upload ended without {}{}", kManifestName,
                           name_.empty() ? "" : ", within file " + name_);
  }
  RING_ASSIGN_OR_RETURN(manifest_, ParseManifest(manifest_text_));
  if (manifest_.step != step_) {
    return InvalidArgument("{} is of step {}, the upload of step {}", kManifestName, manifest_.step,
                           step_);
  }
  for (const auto& [name, file] : files_) {
    const auto listed = manifest_.files.find(name);
    if (listed == manifest_.files.end()) {
      return InvalidArgument("file {} does not stand in {}", name, kManifestName);
    }
    if (!(listed->second == file)) {
      return InvalidArgument(
          "file {} has {} bytes with SHA-256 {}; {} says {} bytes with SHA-256 {}", name,
          file.bytes, file.sha256, kManifestName, listed->second.bytes, listed->second.sha256);
    }
  }
  for (const auto& [name, file] : manifest_.files) {
    if (!files_.contains(name)) {
      return InvalidArgument("file {} stands in {}, but did not come", name, kManifestName);
    }
  }
  return absl::OkStatus();
}

}  // namespace ringmaster::coordinator
