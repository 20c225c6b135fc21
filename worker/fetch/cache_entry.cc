#include "worker/fetch/cache_entry.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "common/amount.h"
#include "common/crc32c.h"
#include "common/failpoint.h"
#include "common/files.h"

namespace ringmaster::worker {

namespace {

// A record of a piece, as it lies in `pieces`. In the byte order of the host: the folder is its.
struct Record {
  PieceId piece;
  Sha256Digest sha256{};
  uint32_t crc32c = 0;  // of what is before
};
static_assert(sizeof(Record) == 44);

uint32_t ChecksumOf(const Record& record) {
  return ExtendCrc32c(0, {reinterpret_cast<const uint8_t*>(&record), offsetof(Record, crc32c)});
}

Status SystemError(const std::string& what, const std::string& path) {
  return Error(absl::StatusCode::kUnavailable, "cannot {} {}: {}", what, path,
               std::strerror(errno));
}

bool IsFull(int error) { return error == ENOSPC || error == EDQUOT; }

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Makes the folders above `name` beneath `folder`, and the file, never through a link: -1 and
// errno.
int OpenForWriting(const OwnedFile& folder, const std::string& name) {
  OwnedFile at(fcntl(folder.get(), F_DUPFD_CLOEXEC, 0));
  size_t begin = 0;
  for (size_t end = name.find('/'); end != std::string::npos; end = name.find('/', begin)) {
    const std::string part = name.substr(begin, end - begin);
    if (mkdirat(at.get(), part.c_str(), 0700) != 0 && errno != EEXIST) return -1;
    at = OwnedFile(openat(at.get(), part.c_str(), O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!at.valid()) return -1;
    begin = end + 1;
  }
  return openat(at.get(), name.substr(begin).c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
                0600);
}

bool HasLength(const OwnedFile& folder, const SourceFile& file) {
  const auto opened = data::OpenBeneath(folder, file.name, data::Wanted::kFile);
  struct stat status = {};
  return opened.ok() && fstat(opened->get(), &status) == 0 &&
         static_cast<uint64_t>(status.st_size) == file.bytes;
}

}  // namespace

// ---- locks, and whole entries -------------------------------------------------------------------

StatusOr<std::unique_ptr<EntryLock>> EntryLock::Try(const std::string& folder, Kind kind) {
  const std::string path = folder + "/lock";
  OwnedFile file(open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) return SystemError("open", path);
  if (flock(file.get(), (kind == Kind::kShared ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0) {
    return std::unique_ptr<EntryLock>(new EntryLock(std::move(file)));
  }
  if (errno == EWOULDBLOCK) return FailedPrecondition("{} is in use", folder);
  return SystemError("lock", path);
}

void EntryLock::Share() const { (void)flock(file_.get(), LOCK_SH | LOCK_NB); }
void EntryLock::Touch() const { (void)futimens(file_.get(), nullptr); }

StatusOr<std::shared_ptr<const CachedData>> CachedData::Open(const std::string& folder) {
  RING_ASSIGN_OR_RETURN(std::unique_ptr<EntryLock> lock,
                        EntryLock::Try(folder, EntryLock::Kind::kShared));
  RING_ASSIGN_OR_RETURN(const DataList list,
                        DataList::FromText(ReadAll(folder + "/" + kEntryList)));
  RING_ASSIGN_OR_RETURN(const OwnedFile files, data::OpenFolder(folder + "/" + kFiles));
  for (const SourceFile& file : list.files) {
    if (HasLength(files, file)) continue;
    return DataLoss("{} is not there with {} bytes", file.name, file.bytes);
  }
  lock->Touch();
  return std::make_shared<const CachedData>(folder, std::move(lock));
}

// ---- an entry that is being fetched -------------------------------------------------------------

PartialData::PartialData(std::string folder, const DataList& list, std::unique_ptr<EntryLock> lock)
    : folder_(std::move(folder)), list_(list), lock_(std::move(lock)) {
  MutexLock held(mu_);
  for (const SourceFile& file : list_.files) {
    const uint64_t pieces = data_files::PiecesOf(file.bytes);
    there_.emplace_back(pieces, false);
    sha256_.emplace_back(pieces);
  }
}

StatusOr<std::unique_ptr<PartialData>> PartialData::Open(const std::string& folder,
                                                         const DataList& list,
                                                         std::unique_ptr<EntryLock> lock) {
  std::unique_ptr<PartialData> partial(new PartialData(folder, list, std::move(lock)));
  const std::string files = folder + "/" + CachedData::kFiles;
  RING_RETURN_IF_ERROR(MakePrivateFolder(files));
  RING_RETURN_IF_ERROR(partial->WriteList(list));
  RING_ASSIGN_OR_RETURN(partial->files_, data::OpenFolder(files));
  const std::string path = folder + "/" + kEntryPieces;
  const std::string text = ReadAll(path);
  partial->records_ =
      OwnedFile(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!partial->records_.valid()) return SystemError("open", path);
  // Half a record at the end, of a host that died, would shift all that come.
  const size_t whole = text.size() / sizeof(Record) * sizeof(Record);
  if (ftruncate(partial->records_.get(), static_cast<off_t>(whole)) != 0) {
    return SystemError("set the length of", path);
  }
  partial->Recall(text);
  return partial;
}

void PartialData::Recall(const std::string& text) {
  std::set<uint32_t> others;  // files of another length
  MutexLock lock(mu_);
  for (size_t at = 0; at + sizeof(Record) <= text.size(); at += sizeof(Record)) {
    Record record;
    std::memcpy(&record, text.data() + at, sizeof(record));
    const PieceId id = record.piece;
    if (record.crc32c != ChecksumOf(record) || id.file >= there_.size()) continue;
    const SourceFile& file = list_.files[id.file];
    if (id.piece >= there_[id.file].size() || there_[id.file][id.piece]) continue;
    if (!file.pieces.empty() && file.pieces[id.piece] != record.sha256) continue;
    if (!made_.contains(id.file) && !others.contains(id.file)) {
      (HasLength(files_, file) ? made_ : others).insert(id.file);
    }
    if (others.contains(id.file)) continue;
    there_[id.file][id.piece] = true;
    sha256_[id.file][id.piece] = record.sha256;
    done_ += BytesOf(id);
  }
}

uint64_t PartialData::done_bytes() const {
  MutexLock lock(mu_);
  return done_;
}

std::vector<PieceId> PartialData::Missing() const {
  MutexLock lock(mu_);
  std::vector<PieceId> missing;
  for (uint32_t file = 0; file < there_.size(); ++file) {
    for (uint32_t piece = 0; piece < there_[file].size(); ++piece) {
      if (!there_[file][piece]) missing.push_back({file, piece});
    }
  }
  return missing;
}

Status PartialData::FullDisk(const std::string& name) const {
  struct statvfs disk = {};
  const uint64_t free =
      statvfs(folder_.c_str(), &disk) == 0 ? uint64_t{disk.f_bavail} * disk.f_frsize : 0;
  return Error(absl::StatusCode::kResourceExhausted,
               "the disk of --data-cache {} is full, at {}: {} of {} are still to come, and {} are "
               "free; make room there, or name a folder on another disk with --data-cache. What is "
               "there already is kept",
               std::filesystem::path(folder_).parent_path().string(), name,
               FormatBytes(list_.bytes() - done_bytes()), FormatBytes(list_.bytes()),
               FormatBytes(free));
}

Status PartialData::WriteList(const DataList& list) const {
  const std::string text = list.ToText();
  Status written = WriteDurably(folder_ + "/" + kEntryList, text);
  if (written.ok() || FreeBytes(folder_).value_or(UINT64_MAX) >= text.size()) return written;
  return FullDisk(kEntryList);
}

Status PartialData::WriteBytes(PieceId piece, std::span<const uint8_t> bytes) {
  const SourceFile& file = list_.files[piece.file];
  const auto failed = [&](const char* what) {
    if (IsFull(errno)) return FullDisk(file.name);
    return SystemError(what, folder_ + "/" + CachedData::kFiles + "/" + file.name);
  };
  const OwnedFile opened(OpenForWriting(files_, file.name));
  if (!opened.valid()) return failed("make");
  bool made = true;
  {
    MutexLock lock(mu_);
    if (!made_.contains(piece.file)) {
      // Whatever lay there is nobody's.
      made = ftruncate(opened.get(), 0) == 0 &&
             ftruncate(opened.get(), static_cast<off_t>(file.bytes)) == 0;
      if (made) made_.insert(piece.file);
    }
  }
  if (!made) return failed("set the length of");
  const uint64_t offset = uint64_t{piece.piece} * kPieceBytes;
  if (!WriteAllAt(opened.get(), offset, bytes)) return failed("write");
  return fdatasync(opened.get()) == 0 ? absl::OkStatus() : failed("sync");
}

Status PartialData::Write(PieceId piece, std::span<const uint8_t> bytes) {
  RING_RETURN_IF_ERROR(WriteBytes(piece, bytes));
  Record record;
  record.piece = piece;
  Sha256 hash;
  hash.Update(bytes);
  record.sha256 = hash.Finish();
  record.crc32c = ChecksumOf(record);
  // In one call: the record of a process that dies is there or not.
  const ssize_t wrote = write(records_.get(), &record, sizeof(record));
  if (wrote != sizeof(record)) {
    if (wrote >= 0 || IsFull(errno)) return FullDisk(kEntryPieces);
    return SystemError("write", folder_ + "/" + kEntryPieces);
  }
  uint64_t done = 0;
  {
    MutexLock lock(mu_);
    there_[piece.file][piece.piece] = true;
    sha256_[piece.file][piece.piece] = record.sha256;
    done = done_ += bytes.size();
  }
  HitFailpoint("data_piece", done / kPieceBytes);
  return absl::OkStatus();
}

StatusOr<DataList> PartialData::Seal() {
  if (const size_t left = Missing().size(); left > 0) {
    return Internal("{} lacks {} pieces", folder_, left);
  }
  for (const SourceFile& file : list_.files) {
    if (file.bytes > 0) continue;
    const OwnedFile empty(OpenForWriting(files_, file.name));
    if (!empty.valid() || ftruncate(empty.get(), 0) != 0) {
      return IsFull(errno) ? FullDisk(file.name) : SystemError("make", file.name);
    }
  }
  // Names, too: of folders and files, however many.
  if (syncfs(files_.get()) != 0) {
    return IsFull(errno) ? FullDisk("its folders") : SystemError("sync", folder_);
  }
  DataList list = list_;
  {
    MutexLock lock(mu_);
    for (size_t i = 0; i < list.files.size(); ++i) list.files[i].pieces = sha256_[i];
  }
  list.origin = list_.Id();
  RING_RETURN_IF_ERROR(WriteList(list));
  return list;
}

}  // namespace ringmaster::worker
