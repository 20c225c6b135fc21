#include "worker/log/spool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "common/files.h"
#include "common/text.h"
#include "common/ticket.h"
#include "worker/log/spool_file.h"

namespace ringmaster::worker {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxTextBytes = 8 << 10;
constexpr uint64_t kMaxSegmentBytes = uint64_t{4} << 20;
constexpr uint64_t kMaxNumbers = uint64_t{1}
                                 << 40;  // in a segment, lost ones too: else it is damaged
constexpr uint64_t kSegments = 16;       // that a full spool has

// The number of the last whole line; `first` - 1 when there is none. UNAVAILABLE: it cannot be
// read, which is no reason to throw it away.
StatusOr<uint64_t> LastNumber(const std::string& path, uint64_t first, uint64_t bytes) {
  uint64_t last = first - 1;
  const OwnedFile file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const auto text = ReadExactly(file.get(), 0, bytes);
  if (!text.ok()) {
    return Error(absl::StatusCode::kUnavailable,
                 "log spool: cannot read {}: {}; mend that, or move it away", path,
                 Message(text.status()));
  }
  for (size_t at = 0, end; (end = text->find('\n', at)) != std::string::npos; at = end + 1) {
    const auto line = ParseLine(text->substr(at, end - at));
    if (line && line->number() > last && line->number() - first < kMaxNumbers)
      last = line->number();
  }
  return last;
}

}  // namespace

Spool::Spool(SpoolOptions options)
    : options_(std::move(options)),
      segment_bytes_(std::min(kMaxSegmentBytes, options_.limit_bytes / kSegments)) {}

StatusOr<std::unique_ptr<Spool>> Spool::Open(SpoolOptions options) {
  if (options.limit_bytes < kMinSpoolBytes) {
    return InvalidArgument("a log spool of {} bytes; expected at least {}", options.limit_bytes,
                           kMinSpoolBytes);
  }
  std::unique_ptr<Spool> spool(new Spool(std::move(options)));
  RING_RETURN_IF_ERROR(spool->TakeOver());
  return spool;
}

Status Spool::TakeOver() {
  RING_RETURN_IF_ERROR(Annotate(MakePrivateFolder(options_.folder), "log spool"));
  const std::string path = options_.folder + "/state";
  MutexLock lock(mu_);
  state_ = OwnedFile(open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!state_.valid()) {
    return Error(absl::StatusCode::kUnavailable, "log spool: cannot open {}: {}", path,
                 std::strerror(errno));
  }
  const SpoolState state = ParseState(ReadText(state_.get(), 0, 100)).value_or(SpoolState());
  RING_RETURN_IF_ERROR(FindSegments(state.spool));
  // A segment without a whole line has nothing to tell, and its name is needed again.
  const bool same = !spool_.empty() && state.spool == spool_;
  newest_ = same ? state.acknowledged : 0;
  for (; !segments_.empty(); segments_.pop_back()) {
    const Segment& last = segments_.back();
    RING_ASSIGN_OR_RETURN(const uint64_t number, LastNumber(last.path, last.first, last.bytes));
    if (number >= last.first) {
      newest_ = number;
      break;
    }
    unlink(last.path.c_str());
    bytes_ -= last.bytes;
  }
  next_ = std::max(newest_ + 1, same ? state.next : 1);
  if (same) acknowledged_ = std::min(state.acknowledged, newest_);
  if (!same && !segments_.empty()) acknowledged_ = segments_.front().first - 1;
  if (spool_.empty() || (acknowledged_ == newest_ && next_ == newest_ + 1)) BeginAnew();
  return absl::OkStatus();
}

Status Spool::FindSegments(const std::string& preferred_spool) {
  std::vector<SegmentName> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(options_.folder, error)) {
    auto name = ParseSegmentName(entry.path().filename().string());
    if (name && entry.is_regular_file()) names.push_back(*std::move(name));
  }
  if (error) {
    return Error(absl::StatusCode::kUnavailable, "log spool: cannot list {}: {}", options_.folder,
                 error.message());
  }
  std::sort(names.begin(), names.end(), [](const SegmentName& a, const SegmentName& b) {
    return std::pair(a.first, a.spool) < std::pair(b.first, b.spool);
  });
  spool_ = preferred_spool;
  const bool preferred = std::any_of(names.begin(), names.end(), [&](const SegmentName& name) {
    return name.spool == preferred_spool;
  });
  if (!preferred && !names.empty()) spool_ = names.back().spool;
  for (const SegmentName& name : names) {
    Segment segment{options_.folder + "/" + name.ToString(), name.first, 0};
    struct stat file {};
    if (name.spool != spool_) {
      unlink(segment.path.c_str());  // of a spool that was drained before another one began
    } else if (stat(segment.path.c_str(), &file) == 0) {
      segment.bytes = static_cast<uint64_t>(file.st_size);
      bytes_ += segment.bytes;
      segments_.push_back(std::move(segment));
    }
  }
  return absl::OkStatus();
}

void Spool::BeginAnew() {
  file_.Close();
  spool_ = RandomName();
  bytes_ = 0;
  next_ = 1;
  newest_ = 0;
  acknowledged_ = 0;
  SaveState();
  // An old state without its segments would give numbers away that lines have had.
  (void)fdatasync(state_.get());
  for (const Segment& segment : segments_) unlink(segment.path.c_str());
  segments_.clear();
}

void Spool::SaveState() {
  const std::string text = FormatState({spool_, acknowledged_, next_});
  // In place, so that it works on a full disk. An old state only means that lines come twice, which
  // is known by their numbers.
  (void)!pwrite(state_.get(), text.data(), text.size(), 0);
}

void Spool::Append(v1::SpooledLine line) {
  line.set_text(CleanText(line.text(), kMaxTextBytes));
  MutexLock lock(mu_);
  line.set_number(next_);
  const bool written = Write(FormatLine(line));
  if (written) newest_ = next_;
  ++next_;
  if (!written) SaveState();
  DropOldest();
  changed_.NotifyAll();
}

bool Spool::Write(const std::string& text) {
  if (file_.valid() && segments_.back().bytes >= segment_bytes_) file_.Close();
  if (!file_.valid() && !OpenSegment()) return false;
  Segment& segment = segments_.back();
  if (!WriteAll(file_.get(), text)) {
    // Nothing may follow half a line.
    if (ftruncate(file_.get(), static_cast<off_t>(segment.bytes)) != 0) file_.Close();
    return false;
  }
  segment.bytes += text.size();
  bytes_ += text.size();
  return true;
}

bool Spool::OpenSegment() {
  Segment segment{options_.folder + "/" + SegmentName{next_, spool_}.ToString(), next_, 0};
  file_ = OwnedFile(
      open(segment.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600));
  if (!file_.valid()) return false;
  segments_.push_back(std::move(segment));
  return true;
}

void Spool::DropOldest() {
  while (bytes_ > options_.limit_bytes && segments_.size() > 1) {
    unlink(segments_.front().path.c_str());
    bytes_ -= segments_.front().bytes;
    segments_.pop_front();
  }
}

Spool::Batch Spool::Unacknowledged(size_t max_bytes) {
  Batch batch;
  uint64_t after = 0;
  std::vector<Segment> segments;
  {
    MutexLock lock(mu_);
    batch.spool = spool_;
    after = acknowledged_;
    if (newest_ > acknowledged_) segments.assign(segments_.begin(), segments_.end());
  }
  // Files are read without the lock: a segment that is dropped meanwhile is skipped.
  for (size_t i = 0; i < segments.size() && batch.lines.empty(); ++i) {
    const bool before = i + 1 < segments.size() && segments[i + 1].first <= after + 1;
    if (!before) batch.lines = ReadSegment(segments[i], after, max_bytes);
  }
  return batch;
}

std::vector<v1::SpooledLine> Spool::ReadSegment(const Segment& segment, uint64_t after,
                                                size_t max_bytes) {
  std::vector<v1::SpooledLine> lines;
  const OwnedFile file(open(segment.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return lines;
  const bool goes_on = position_.path == segment.path && position_.after == after;
  uint64_t offset = goes_on ? position_.offset : 0;
  const std::string text =
      ReadText(file.get(), offset, segment.bytes - std::min(offset, segment.bytes));
  // So that no number is handed out that a power loss would have us use again.
  if (fdatasync(file.get()) != 0) return lines;
  size_t bytes = 0;
  uint64_t newest = after;
  for (size_t at = 0, end; bytes < max_bytes && (end = text.find('\n', at)) != std::string::npos;
       at = end + 1) {
    auto line = ParseLine(text.substr(at, end - at));
    if (!line || line->number() <= newest) continue;
    newest = line->number();
    bytes += line->ByteSizeLong();
    lines.push_back(*std::move(line));
    position_ = {segment.path, newest, offset + end + 1};
  }
  return lines;
}

void Spool::Acknowledge(const std::string& spool, uint64_t number) {
  MutexLock lock(mu_);
  if (spool != spool_ || number <= acknowledged_) return;
  acknowledged_ = std::min(number, newest_);
  while (segments_.size() > 1 && segments_[1].first <= acknowledged_ + 1) {
    unlink(segments_.front().path.c_str());
    bytes_ -= segments_.front().bytes;
    segments_.pop_front();
  }
  SaveState();
}

void Spool::BeginAnewIfDrained() {
  MutexLock lock(mu_);
  if (newest_ != 0 && newest_ == acknowledged_ && next_ == newest_ + 1) BeginAnew();
}

bool Spool::WaitForLines(std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(mu_);
  changed_.WaitUntil(mu_, deadline, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return woken_ || newest_ > acknowledged_;
  });
  woken_ = false;
  return newest_ > acknowledged_;
}

void Spool::Wake() {
  MutexLock lock(mu_);
  woken_ = true;
  changed_.NotifyAll();
}

bool Spool::drained() const {
  MutexLock lock(mu_);
  return newest_ == acknowledged_;
}

}  // namespace ringmaster::worker
