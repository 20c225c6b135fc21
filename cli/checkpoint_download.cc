#include "cli/checkpoint_download.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "common/files.h"
#include "common/json.h"

namespace ringmaster::cli {
namespace {

constexpr char kManifest[] = "manifest.json";
constexpr char kPart[] = ".part";
constexpr std::array<const char*, 2> kWeights = {"model.safetensors", "ema.safetensors"};

Status SystemError(const std::string& what, const std::string& path) {
  return Error(absl::StatusCode::kFailedPrecondition, "cannot {} {}: {}", what, path,
               std::strerror(errno));
}

template <typename... Args>
Status DataLoss(fmt::format_string<Args...> format, Args&&... args) {
  return Error(absl::StatusCode::kDataLoss, format, std::forward<Args>(args)...);
}

// The process that a file `.NAME.PID.part` is of; 0: it is none.
pid_t WriterOf(const std::string& name) {
  if (!name.starts_with('.') || !name.ends_with(kPart)) return 0;
  const std::string stem = name.substr(1, name.size() - 1 - std::strlen(kPart));
  const size_t dot = stem.rfind('.');
  if (dot == std::string::npos || !IsPlainFileName(stem.substr(0, dot))) return 0;
  const char* const end = stem.data() + stem.size();
  pid_t writer = 0;
  const auto read = std::from_chars(stem.data() + dot + 1, end, writer);
  return read.ec == std::errc() && read.ptr == end ? writer : 0;
}

// What a download that was killed left.
void RemoveAbandoned(const std::string& folder) {
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(folder, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const pid_t writer = WriterOf(entry->path().filename());
    if (writer > 0 && kill(writer, 0) != 0 && errno == ESRCH) unlink(entry->path().c_str());
  }
}

std::string ReadWhole(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Name and SHA-256 of each file of a manifest: {"files": [{"name": ..., "sha256": ...}, ...]}.
StatusOr<std::vector<DownloadedFile>> ReadManifest(const std::string& path) {
  const StatusOr<nlohmann::json> parsed = ParseJson(ReadWhole(path), {});
  if (!parsed.ok()) return DataLoss("manifest.json: {}", Message(parsed.status()));
  const nlohmann::json& manifest = *parsed;
  if (!manifest.is_object() || !manifest.contains("files") || !manifest["files"].is_array()) {
    return DataLoss("manifest.json is not a manifest: no list `files`");
  }
  std::vector<DownloadedFile> files;
  for (const auto& entry : manifest["files"]) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
        !entry.contains("sha256") || !entry["sha256"].is_string()) {
      return DataLoss("manifest.json has a file without name or sha256");
    }
    files.push_back({entry["name"].get<std::string>(), 0, entry["sha256"].get<std::string>()});
  }
  return files;
}

}  // namespace

StatusOr<CheckpointDownload> CheckpointDownload::Create(const std::string& folder,
                                                        const std::string& manifest_sha256) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return FailedPrecondition("cannot create folder {}: {}", folder, error.message());
  RemoveAbandoned(folder);
  return CheckpointDownload(folder, manifest_sha256);
}

CheckpointDownload::CheckpointDownload(std::string folder, std::string manifest_sha256)
    : folder_(std::move(folder)), manifest_sha256_(std::move(manifest_sha256)) {}

CheckpointDownload::CheckpointDownload(CheckpointDownload&& other) noexcept
    : folder_(other.folder_),
      manifest_sha256_(other.manifest_sha256_),
      files_(std::exchange(other.files_, {})),
      file_(std::move(other.file_)),
      hash_(std::move(other.hash_)) {}

CheckpointDownload::~CheckpointDownload() {
  file_.Close();
  for (const DownloadedFile& file : files_) unlink(TemporaryOf(file.name).c_str());
}

std::string CheckpointDownload::PathOf(const std::string& name) const {
  return (std::filesystem::path(folder_) / name).string();
}

// Of this process alone, so that two downloads never write one file.
std::string CheckpointDownload::TemporaryOf(const std::string& name) const {
  return PathOf(fmt::format(".{}.{}{}", name, getpid(), kPart));
}

Status CheckpointDownload::Open(const std::string& name) {
  if (!IsPlainFileName(name)) {
    return InvalidArgument("the coordinator sent a file named `{}`: not a plain file name", name);
  }
  for (const DownloadedFile& file : files_) {
    if (file.name == name) return DataLoss("the coordinator sent {} twice", name);
  }
  const std::string path = TemporaryOf(name);
  file_ =
      OwnedFile(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file_.valid()) return SystemError("create", path);
  files_.push_back({name, 0, ""});
  return absl::OkStatus();
}

Status CheckpointDownload::Close() {
  const std::string path = TemporaryOf(files_.back().name);
  files_.back().sha256 = Hex(hash_.Finish());
  const Status synced = fsync(file_.get()) == 0 ? absl::OkStatus() : SystemError("sync", path);
  file_.Close();
  return synced;
}

Status CheckpointDownload::Add(const v1::FilePiece& piece) {
  if (!file_.valid()) RING_RETURN_IF_ERROR(Open(piece.name()));
  DownloadedFile& file = files_.back();
  if (piece.name() != file.name || piece.offset() != file.bytes) {
    return DataLoss("a piece of {} at byte {} arrived, expected {} at byte {}", piece.name(),
                    piece.offset(), file.name, file.bytes);
  }
  const std::string& data = piece.data();
  if (!WriteAll(file_.get(), data)) return SystemError("write", TemporaryOf(file.name));
  hash_.Update(data);
  file.bytes += data.size();
  return piece.last() ? Close() : absl::OkStatus();
}

Status CheckpointDownload::Verify() const {
  if (file_.valid())
    return DataLoss("{} ended early, after {} bytes", files_.back().name, files_.back().bytes);
  if (files_.empty() || files_.back().name != kManifest) {
    return DataLoss("the checkpoint has no manifest.json at its end");
  }
  if (files_.back().sha256 != manifest_sha256_) {
    return DataLoss("manifest.json has SHA-256 {}, expected {}", files_.back().sha256,
                    manifest_sha256_);
  }
  RING_ASSIGN_OR_RETURN(const auto expected, ReadManifest(TemporaryOf(kManifest)));
  if (expected.size() + 1 != files_.size()) {
    return DataLoss("manifest.json lists {} files, {} arrived", expected.size(), files_.size() - 1);
  }
  for (const DownloadedFile& want : expected) {
    const auto got = std::find_if(files_.begin(), files_.end(), [&](const DownloadedFile& file) {
      return file.name == want.name;
    });
    if (got == files_.end()) return DataLoss("{} of manifest.json did not arrive", want.name);
    if (got->sha256 != want.sha256) {
      return DataLoss("{} has SHA-256 {}, the manifest says {}", want.name, got->sha256,
                      want.sha256);
    }
  }
  return absl::OkStatus();
}

Status CheckpointDownload::CheckExisting() const {
  for (const DownloadedFile& file : files_) {
    const StatusOr<std::string> sha256 = Sha256HexOfFile(PathOf(file.name));
    if (sha256.status().code() == absl::StatusCode::kNotFound) continue;
    RING_RETURN_IF_ERROR(sha256.status());
    if (*sha256 != file.sha256) {
      return Error(absl::StatusCode::kAlreadyExists,
                   "{} exists with other content; remove it or choose another folder",
                   PathOf(file.name));
    }
  }
  return absl::OkStatus();
}

StatusOr<std::vector<DownloadedFile>> CheckpointDownload::Commit() {
  RING_RETURN_IF_ERROR(Verify());
  return Publish();
}

StatusOr<std::vector<DownloadedFile>> CheckpointDownload::CommitWeights(const Convert& convert) {
  RING_RETURN_IF_ERROR(Verify());
  std::vector<DownloadedFile> weights;
  for (const DownloadedFile& file : files_) {
    const std::string path = TemporaryOf(file.name);
    if (std::ranges::find(kWeights, file.name) == kWeights.end()) {
      unlink(path.c_str());
      continue;
    }
    const StatusOr<std::string> converted = convert(ReadWhole(path));
    RING_RETURN_IF_ERROR(Annotate(converted.status(), file.name));
    RING_RETURN_IF_ERROR(WriteDurably(path, *converted, 0644));
    weights.push_back({file.name, converted->size(), Hex(Sha256Of(*converted))});
  }
  if (weights.empty()) {
    return FailedPrecondition(
        "the checkpoint has no weights that could be written in another layout");
  }
  files_ = std::move(weights);
  return Publish();
}

StatusOr<std::vector<DownloadedFile>> CheckpointDownload::Publish() {
  RING_RETURN_IF_ERROR(CheckExisting());
  for (const DownloadedFile& file : files_) {
    if (std::rename(TemporaryOf(file.name).c_str(), PathOf(file.name).c_str()) != 0) {
      return SystemError("rename to", PathOf(file.name));
    }
  }
  RING_RETURN_IF_ERROR(SyncFolder(folder_));
  return std::exchange(files_, {});
}

}  // namespace ringmaster::cli
