#include "coordinator/store/log_track.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "common/files.h"
#include "common/log.h"
#include "coordinator/store/data_folder.h"

namespace ringmaster::coordinator {
namespace {

constexpr size_t kOrdinalDigits = 20;
constexpr char kSuffix[] = ".log";
constexpr uint64_t kTailBytes = 128 << 10;  // several of the longest records

Status AppendDurably(const std::string& path, const std::string& text) {
  const OwnedFile file(open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!file.valid()) return DiskError("log: cannot open", path);
  if (!WriteAll(file.get(), text)) return DiskError("log: cannot write", path);
  if (fdatasync(file.get()) != 0) return DiskError("log: cannot sync", path);
  return absl::OkStatus();
}

// What cannot be read is no reason to throw it away.
StatusOr<std::string> ReadRange(const std::string& path, uint64_t begin, uint64_t end) {
  const OwnedFile file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return DiskError("log: cannot open", path);
  StatusOr<std::string> text = ReadExactly(file.get(), begin, end - begin);
  if (!text.ok()) return Annotate(text.status(), "log: cannot read " + path);
  return text;
}

// The last record in bytes [begin, end) of a file, and where it ends.
StatusOr<std::optional<std::pair<LogRecord, uint64_t>>> LastRecord(const std::string& path,
                                                                   uint64_t begin, uint64_t end) {
  RING_ASSIGN_OR_RETURN(const std::string text, ReadRange(path, begin, end));
  size_t stop = text.rfind('\n');
  while (stop != std::string::npos) {
    const size_t before = stop == 0 ? std::string::npos : text.rfind('\n', stop - 1);
    const size_t start = before == std::string::npos ? 0 : before + 1;
    auto record = ParseRecord(text.substr(start, stop - start));
    if (record) return std::pair(*std::move(record), begin + stop + 1);
    stop = before;
  }
  return std::nullopt;
}

}  // namespace

std::string LogTrack::FileName::ToString() const {
  return fmt::format("{}@{:020}{}", worker, first, kSuffix);
}

std::optional<LogTrack::FileName> LogTrack::ParseFileName(const std::string& name) {
  const size_t at = name.rfind('@');
  if (at == std::string::npos || at == 0 || !name.ends_with(kSuffix)) return std::nullopt;
  const std::string digits = name.substr(at + 1, name.size() - at - sizeof(kSuffix));
  FileName parsed{name.substr(0, at), 0};
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), parsed.first);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  if (digits.size() != kOrdinalDigits || parsed.first == 0) return std::nullopt;
  return parsed;
}

Status LogTrack::Recover(std::vector<uint64_t> firsts) {
  std::sort(firsts.begin(), firsts.end());
  for (const uint64_t first : firsts) {
    Segment segment{folder_ + "/" + FileName{worker_, first}.ToString(), first, 0};
    struct stat file {};
    if (stat(segment.path.c_str(), &file) != 0) return DiskError("log: cannot find", segment.path);
    segment.bytes = static_cast<uint64_t>(file.st_size);
    bytes_ += segment.bytes;
    segments_.push_back(std::move(segment));
  }
  RING_RETURN_IF_ERROR(RecoverLast());
  ReadFirst();
  return absl::OkStatus();
}

Status LogTrack::RecoverLast() {
  for (; !segments_.empty(); segments_.pop_back()) {
    Segment& segment = segments_.back();
    const uint64_t tail = segment.bytes > kTailBytes ? segment.bytes - kTailBytes : 0;
    RING_ASSIGN_OR_RETURN(auto last, LastRecord(segment.path, tail, segment.bytes));
    if (!last && tail > 0) {
      RING_ASSIGN_OR_RETURN(last, LastRecord(segment.path, 0, segment.bytes));
    }
    if (last) {
      last_ = last->first;
      if (last->second == segment.bytes) return absl::OkStatus();
      if (truncate(segment.path.c_str(), static_cast<off_t>(last->second)) != 0) {
        return DiskError("log: cannot cut", segment.path);
      }
      bytes_ -= segment.bytes - last->second;
      segment.bytes = last->second;
      return absl::OkStatus();
    }
    if (unlink(segment.path.c_str()) != 0) return DiskError("log: cannot remove", segment.path);
    bytes_ -= segment.bytes;
  }
  return absl::OkStatus();
}

void LogTrack::ReadFirst() {
  first_ = {};
  if (segments_.empty()) return;
  first_.ordinal = segments_.front().first;
  const auto text =
      ReadRange(segments_.front().path, 0, std::min(segments_.front().bytes, kTailBytes));
  if (!text.ok()) return;  // what was lost before it is not counted then
  const auto record = ParseRecord(text->substr(0, text->find('\n')));
  if (record) first_ = *record;
}

Status LogTrack::OpenSegment(uint64_t first) {
  Segment segment{folder_ + "/" + FileName{worker_, first}.ToString(), first, 0};
  const OwnedFile file(
      open(segment.path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return DiskError("log: cannot make", segment.path);
  RING_RETURN_IF_ERROR(SyncFolder(folder_));
  segments_.push_back(std::move(segment));
  broken_ = false;
  return absl::OkStatus();
}

Status LogTrack::Append(const std::vector<LogRecord>& records, uint64_t segment_bytes) {
  if (records.empty()) return absl::OkStatus();
  if (segments_.empty() || broken_ || segments_.back().bytes >= segment_bytes) {
    RING_RETURN_IF_ERROR(OpenSegment(records.front().ordinal));
    if (segments_.size() == 1) first_ = records.front();
  }
  std::string text;
  for (const LogRecord& record : records) text += FormatRecord(record);
  Segment& segment = segments_.back();
  if (const Status status = AppendDurably(segment.path, text); !status.ok()) {
    broken_ = truncate(segment.path.c_str(), static_cast<off_t>(segment.bytes)) != 0;
    return status;
  }
  segment.bytes += text.size();
  bytes_ += text.size();
  last_ = records.back();
  return absl::OkStatus();
}

bool LogTrack::DropOldest() {
  if (segments_.size() < 2) return false;
  unlink(segments_.front().path.c_str());
  bytes_ -= segments_.front().bytes;
  segments_.pop_front();
  ReadFirst();
  return true;
}

bool LogTrack::ended() const { return last_.line.level() == kEndLevel; }

uint64_t LogTrack::lost() const {
  return segments_.empty() ? 0 : last_.lost + (first_.ordinal - 1 - first_.lost);
}

}  // namespace ringmaster::coordinator
