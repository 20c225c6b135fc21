#include "common/data_files/file_list.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>
#include <utility>

#include "common/data/data_url.h"
#include "common/data/kept_files.h"
#include "common/files.h"
#include "common/log.h"
#include "common/text.h"

namespace ringmaster::data_files {
namespace {

using data::Wanted;

constexpr char kPrefix[] = "pieces-", kSuffix[] = ".sha256";

std::string Join(const std::string& folder, const std::string& name) {
  return folder.empty() ? name : folder + "/" + name;
}

StatusOr<data::FileIdentity> IdentityOf(const OwnedFile& file, const std::string& name) {
  struct stat status = {};
  if (fstat(file.get(), &status) == 0) return data::FileIdentity::Of(status);
  return Error(absl::StatusCode::kUnavailable, "{}: {}", name, std::strerror(errno));
}

}  // namespace

bool IsHidden(const std::string& name) {
  return name.starts_with('.') || name.find("/.") != std::string::npos;
}

Status CheckName(const std::string& name) {
  const Status status = data::CheckFileName(name);
  const bool hidden = IsHidden(name);
  if (status.ok() && !hidden) return absl::OkStatus();
  return InvalidArgument("{}", hidden ? fmt::format("\"{}\" has a part that begins with a dot",
                                                    OneLine(name, kMaxNameText))
                                      : Message(status));
}

FileList::FileList(OwnedFile folder, std::string memory)
    : folder_(std::move(folder)), memory_(std::move(memory)), open_folders_{""} {}

FileList::~FileList() { Save(); }

StatusOr<std::unique_ptr<FileList>> FileList::Begin(const std::string& root,
                                                    const std::string& path,
                                                    const std::string& state_dir) {
  RING_ASSIGN_OR_RETURN(const OwnedFile above, data::OpenFolder(root));
  RING_ASSIGN_OR_RETURN(OwnedFile folder, data::OpenBeneath(above, path, Wanted::kFolder));
  RING_ASSIGN_OR_RETURN(const data::FileIdentity identity, IdentityOf(folder, path));
  std::string memory;
  if (!state_dir.empty()) {
    memory =
        fmt::format("{}/{}{}-{}{}", state_dir, kPrefix, identity.device, identity.inode, kSuffix);
  }
  std::unique_ptr<FileList> list(new FileList(std::move(folder), std::move(memory)));
  list->Recall();
  return list;
}

Status FileList::Step() {
  if (complete_ || !broken_.ok()) return broken_;
  broken_ = listed_ ? HashNext() : ListNext();
  return broken_;
}

Status FileList::ListNext() {
  const std::string at = open_folders_.back();
  open_folders_.pop_back();
  RING_ASSIGN_OR_RETURN(const data::FolderEntries entries,
                        data::ListFolder(folder_, at.empty() ? "." : at));
  if (std::ranges::count(at, '/') >= static_cast<ptrdiff_t>(kMostDepth)) {
    return InvalidArgument("{}: more than {} folders in each other (a link to one above?)",
                           OneLine(at, kMaxNameText), kMostDepth);
  }
  for (const std::string& name : entries.folders) open_folders_.push_back(Join(at, name));
  for (const std::string& name : entries.files) {
    const std::string whole = Join(at, name);
    RING_RETURN_IF_ERROR(CheckName(whole));
    // What leads out of the folder, and what is no file, is not the dataset's.
    const StatusOr<OwnedFile> file = data::OpenBeneath(folder_, whole, Wanted::kFile);
    if (!file.ok() && file.status().code() == absl::StatusCode::kInvalidArgument) continue;
    if (!file.ok()) return file.status();
    RING_ASSIGN_OR_RETURN(const data::FileIdentity identity, IdentityOf(*file, whole));
    if (files_.size() == kMostFiles) {
      return InvalidArgument("there are more than {} files: pack them (`ringctl dataset pack`)",
                             kMostFiles);
    }
    files_.push_back({whole, identity.size, {}});
    total_bytes_ += identity.size;
  }
  if (!open_folders_.empty()) return absl::OkStatus();
  std::ranges::sort(files_, {}, &ListedFile::name);
  listed_ = true;
  complete_ = files_.empty();
  return absl::OkStatus();
}

Status FileList::OpenNext() {
  const ListedFile& next = files_[known_];
  RING_ASSIGN_OR_RETURN(file_, data::OpenBeneath(folder_, next.name, Wanted::kFile));
  RING_ASSIGN_OR_RETURN(identity_, IdentityOf(file_, next.name));
  if (identity_.size == next.bytes) return absl::OkStatus();
  return FailedPrecondition("{} had {} bytes, and now has {}: it changes while it is read",
                            next.name, next.bytes, identity_.size);
}

Status FileList::HashNext() {
  ListedFile& file = files_[known_];
  const uint64_t pieces = PiecesOf(file.bytes);
  if (!file_.valid()) {
    RING_RETURN_IF_ERROR(OpenNext());
    const auto found = remembered_.find(identity_);
    if (found != remembered_.end() && found->second.size() == pieces * sizeof(Sha256Digest)) {
      file.pieces.resize(pieces);
      std::memcpy(file.pieces.data(), found->second.data(), found->second.size());
      known_bytes_ += file.bytes;
    }
  }
  if (file.pieces.size() < pieces) {
    const uint64_t offset = file.pieces.size() * kPieceBytes;
    buffer_.resize(std::min(kPieceBytes, file.bytes - offset));
    RING_RETURN_IF_ERROR(Annotate(ReadExactly(file_.get(), offset, buffer_), file.name));
    Sha256 hash;
    hash.Update(buffer_);
    file.pieces.push_back(hash.Finish());
    known_bytes_ += buffer_.size();
    if (file.pieces.size() < pieces) return absl::OkStatus();
    RING_RETURN_IF_ERROR(KeepHashes());
  }
  file_ = OwnedFile();
  complete_ = ++known_ == files_.size();
  if (complete_) Save();
  return absl::OkStatus();
}

// A file was hashed whole: keeps that, unless it changed meanwhile, or may have.
Status FileList::KeepHashes() {
  const ListedFile& file = files_[known_];
  RING_ASSIGN_OR_RETURN(const data::FileIdentity now, IdentityOf(file_, file.name));
  if (!(now == identity_)) {
    return FailedPrecondition("{} changed while it was read", file.name);
  }
  if (memory_.empty() || !identity_.settled) return absl::OkStatus();
  // What the same file was before is of no use any more.
  std::erase_if(remembered_, [&](const auto& entry) {
    return entry.first.device == now.device && entry.first.inode == now.inode;
  });
  remembered_[identity_] = {reinterpret_cast<const char*>(file.pieces.data()),
                            file.pieces.size() * sizeof(Sha256Digest)};
  news_ = true;
  return absl::OkStatus();
}

void FileList::Recall() {
  if (memory_.empty()) return;
  std::istringstream lines(data::ReadKept(memory_).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    data::FileIdentity id;
    std::string hex;
    words >> id.device >> id.inode >> id.size >> id.modified_ns >> hex;
    std::optional<std::string> bytes = FromHex(hex);
    if (words && bytes) remembered_[id] = *std::move(bytes);
  }
}

void FileList::Save() {
  if (!std::exchange(news_, false)) return;
  std::string content;
  for (const auto& [id, pieces] : remembered_) {
    content +=
        fmt::format("{} {} {} {} {}\n", id.device, id.inode, id.size, id.modified_ns, Hex(pieces));
  }
  const Status written = WriteDurably(memory_, content);
  if (!written.ok()) {
    return spdlog::warn("served files are hashed again next time: {}", Message(written));
  }
  data::DropOldest(std::filesystem::path(memory_).parent_path().string(),
                   {.suffix = kSuffix, .prefix = kPrefix});
}

}  // namespace ringmaster::data_files
