#include "coordinator/store/checkpoint_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

namespace ringmaster::coordinator {
namespace {

constexpr uint64_t kPieceBytes = 1 << 20;

// By errno. ABORTED: it is not there; UNAVAILABLE says nothing of what it holds.
Status CannotOpen(const std::string& path) {
  if (errno == ENOENT) {
    return Error(absl::StatusCode::kAborted, "{} was removed meanwhile; list the checkpoints again",
                 path);
  }
  return Error(absl::StatusCode::kUnavailable, "{} cannot be read: {}", path, std::strerror(errno));
}

}  // namespace

StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(const std::string& path,
                                                                   const std::string& sha256) {
  std::ifstream file(path + "/" + kManifestName, std::ios::binary);
  if (!file) return CannotOpen(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (const std::string found = Hex(Sha256Of(text)); found != sha256) {
    return Error(absl::StatusCode::kDataLoss, "{}/{} has SHA-256 {}, expected {}", path,
                 kManifestName, found, sha256);
  }
  std::unique_ptr<CheckpointReader> reader(new CheckpointReader(path));
  RING_ASSIGN_OR_RETURN(reader->manifest_, ParseManifest(text));
  for (const auto& [name, expected] : reader->manifest_.files) {
    RING_RETURN_IF_ERROR(reader->Add(name, expected));
  }
  RING_RETURN_IF_ERROR(reader->Add(kManifestName, {text.size(), sha256}));
  return reader;
}

Status CheckpointReader::Add(const std::string& name, const Manifest::File& expected) {
  const std::string path = path_ + "/" + name;
  OwnedFile opened(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened.valid()) return CannotOpen(path);
  files_.push_back({name, std::move(opened), expected});
  return absl::OkStatus();
}

StatusOr<std::optional<v1::FilePiece>> CheckpointReader::Next() {
  if (current_ == files_.size()) return std::optional<v1::FilePiece>();
  const File& file = files_[current_];
  std::string data(std::min(kPieceBytes, file.expected.bytes - offset_), '\0');
  const StatusOr<size_t> got =
      ReadUpTo(file.opened.get(), offset_, {reinterpret_cast<uint8_t*>(data.data()), data.size()});
  if (!got.ok()) {
    return Error(absl::StatusCode::kUnavailable, "cannot read {}/{} from byte {} on: {}", path_,
                 file.name, offset_, Message(got.status()));
  }
  if (*got < data.size()) {
    return Error(absl::StatusCode::kDataLoss, "{}/{} ends at byte {}, expected {}", path_,
                 file.name, offset_ + *got, file.expected.bytes);
  }
  hash_.Update(data);
  v1::FilePiece piece;
  piece.set_name(file.name);
  piece.set_offset(offset_);
  offset_ += data.size();
  piece.set_data(std::move(data));
  piece.set_last(offset_ == file.expected.bytes);
  piece.set_bytes(file.expected.bytes);
  if (piece.last()) {
    if (const std::string found = Hex(hash_.Finish()); found != file.expected.sha256) {
      return Error(absl::StatusCode::kDataLoss, "{}/{} has SHA-256 {}, expected {}", path_,
                   file.name, found, file.expected.sha256);
    }
    ++current_;
    offset_ = 0;
  }
  return std::optional<v1::FilePiece>(std::move(piece));
}

}  // namespace ringmaster::coordinator
