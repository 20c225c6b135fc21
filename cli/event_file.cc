#include "cli/event_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "cli/complaint.h"
#include "common/crc32c.h"
#include "tensorboard/event.pb.h"

namespace ringmaster::cli {
namespace {

namespace tb = tensorboard;

constexpr size_t kLengthBytes = 8,
                 kChecksumBytes = 4;  // of a TFRecord: length, data, a sum of each
constexpr size_t kFrameBytes = kLengthBytes + 2 * kChecksumBytes;
constexpr char kFileVersion[] = "brain.Event:2";
constexpr char kRewindsIs[] = "rewinds=";

uint32_t ChecksumOf(const std::string& text) {
  return MaskedCrc32c(
      ExtendCrc32c(0, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
}

template <typename Word>
void PutWord(Word value, std::string* to) {
  for (size_t i = 0; i < sizeof(Word); ++i) to->push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t WordAt(const std::string& bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[at + i])) << (8 * i);
  }
  return value;
}

std::string FrameOf(const std::string& event) {
  std::string record;
  PutWord(static_cast<uint64_t>(event.size()), &record);
  PutWord(ChecksumOf(record), &record);
  record += event;
  PutWord(ChecksumOf(event), &record);
  return record;
}

Status Cannot(const std::string& path, const std::string& what,
              const std::string& why = std::strerror(errno)) {
  return Error(absl::StatusCode::kInternal,
               "--tensorboard-dir: {}: cannot {}: {}; make room there, or choose another folder",
               path, what, why);
}

Status NotOurs(const std::string& path, const std::string& why) {
  return FailedPrecondition(
      "--tensorboard-dir: {}: {}, so that nothing can be appended; move it away, and it is written "
      "anew",
      path, why);
}

// Epochs that ended at this step or before are of another job.
uint64_t BeginOf(const v1::JobStatus& job) {
  if (job.has_continues()) return job.continues().step();
  return job.resumes_job().empty() ? 0 : job.resumed_from().step();
}

}  // namespace

MetricPoints EventOrder::Next(const v1::JobStatus& job, const MetricPoints& epochs,
                              const MetricPoints& steps) {
  if (!epochs.empty()) newest_epoch_step_ = epochs.back().step();
  waiting_.insert(waiting_.end(), steps.begin(), steps.end());
  const uint64_t epoch = std::max<uint64_t>(1, job.steps_per_epoch());
  const auto has_to_wait = [&](const v1::MetricPoint& point) {
    const uint64_t epoch_end = point.step() - point.step() % epoch;
    return epoch_end > std::max(newest_epoch_step_, BeginOf(job));
  };
  const auto end =
      IsFinal(job.state()) ? waiting_.end() : std::ranges::find_if(waiting_, has_to_wait);
  MetricPoints next;
  std::ranges::merge(std::ranges::subrange(epochs.begin(), epochs.end()),
                     std::ranges::subrange(waiting_.begin(), end), std::back_inserter(next), {},
                     &v1::MetricPoint::step, &v1::MetricPoint::step);
  waiting_.erase(waiting_.begin(), end);
  return next;
}

StatusOr<std::unique_ptr<EventFile>> EventFile::Open(const std::string& folder,
                                                     const std::string& name) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string path = folder + "/" + name;
  const int flags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW;
  OwnedFile opened(error ? -1 : open(path.c_str(), flags, 0666));
  if (!opened.valid()) {
    if (error) errno = error.value();
    return InvalidArgument("--tensorboard-dir: cannot write {}: {}; choose another folder", path,
                           std::strerror(errno));
  }
  if (flock(opened.get(), LOCK_EX | LOCK_NB) != 0) {
    return FailedPrecondition(
        "--tensorboard-dir: another ringctl appends to {}: end it first, or choose another folder",
        path);
  }
  std::unique_ptr<EventFile> file(new EventFile(path, std::move(opened)));
  RING_RETURN_IF_ERROR(file->ReadBack());
  return file;
}

Status EventFile::ReadBack() {
  struct stat facts {};
  if (fstat(file_.get(), &facts) != 0) return Cannot(path_, "look at it");
  const auto bytes = static_cast<uint64_t>(facts.st_size);
  const auto read = [&](uint64_t at, uint64_t count) {
    auto text = ReadExactly(file_.get(), at, count);
    return text.ok() ? text : Cannot(path_, "read it", Message(text.status()));
  };
  while (bytes - size_ >= kFrameBytes) {
    RING_ASSIGN_OR_RETURN(const std::string header, read(size_, kLengthBytes + kChecksumBytes));
    if (ChecksumOf(header.substr(0, kLengthBytes)) !=
        WordAt(header, kLengthBytes, kChecksumBytes)) {
      return NotOurs(path_, fmt::format("there is no record at byte {}", size_));
    }
    const uint64_t length = WordAt(header, 0, kLengthBytes);
    if (length > bytes - size_ - kFrameBytes) break;
    RING_ASSIGN_OR_RETURN(const std::string event, read(size_ + header.size(), length));
    RING_ASSIGN_OR_RETURN(const std::string sum,
                          read(size_ + header.size() + length, kChecksumBytes));
    if (ChecksumOf(event) != WordAt(sum, 0, kChecksumBytes)) {
      return NotOurs(path_, fmt::format("the record at byte {} is damaged", size_));
    }
    RING_RETURN_IF_ERROR(Take(event));
    size_ += kFrameBytes + length;
  }
  if (size_ < bytes && ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) {
    return Cannot(path_, "cut off its last record");
  }
  return absl::OkStatus();
}

Status EventFile::Take(const std::string& bytes) {
  tb::Event event;
  const bool parsed = event.ParseFromString(bytes);
  if (!parsed || (size_ == 0 && event.file_version() != kFileVersion)) {
    return NotOurs(path_, fmt::format("the record at byte {} is none of this program's", size_));
  }
  if (event.has_session_log()) {
    newest_.clear();
    const std::string& said = event.session_log().msg();
    rewinds_ = said.starts_with(kRewindsIs)
                   ? std::strtoull(said.c_str() + std::strlen(kRewindsIs), nullptr, 10)
                   : 0;
  }
  for (const tb::Summary::Value& value : event.summary().value()) {
    newest_[value.tag()] = static_cast<uint64_t>(event.step());
  }
  return absl::OkStatus();
}

std::optional<uint64_t> EventFile::NewestStep(const std::string& tag) const {
  const auto newest = newest_.find(tag);
  return newest == newest_.end() ? std::nullopt : std::optional(newest->second);
}

Status EventFile::Restart(uint64_t rewinds, int64_t unix_ms) {
  tb::Event event;
  event.set_wall_time(static_cast<double>(unix_ms) / 1e3);
  if (size_ == 0) {
    event.set_file_version(kFileVersion);
    RING_RETURN_IF_ERROR(Append(event.SerializeAsString()));
  }
  event.mutable_session_log()->set_status(tb::SessionLog::START);
  event.mutable_session_log()->set_msg(fmt::format("{}{}", kRewindsIs, rewinds));
  RING_RETURN_IF_ERROR(Append(event.SerializeAsString()));
  newest_.clear();
  rewinds_ = rewinds;
  return absl::OkStatus();
}

Status EventFile::Add(const v1::MetricPoint& point) {
  if (size_ == 0) RING_RETURN_IF_ERROR(Restart(0, point.unix_ms()));
  tb::Event event;
  event.set_wall_time(static_cast<double>(point.unix_ms()) / 1e3);
  event.set_step(static_cast<int64_t>(point.step()));
  for (const v1::MetricValue& value : point.values()) {
    const std::optional<uint64_t> newest = NewestStep(value.name());
    if (newest && point.step() <= *newest) continue;
    tb::Summary::Value& scalar = *event.mutable_summary()->add_value();
    scalar.set_tag(value.name());
    scalar.set_simple_value(static_cast<float>(value.value()));
    newest_[value.name()] = point.step();
  }
  return event.has_summary() ? Append(event.SerializeAsString()) : absl::OkStatus();
}

// Whole or not at all, as far as the disk lets us.
Status EventFile::Append(const std::string& event) {
  const std::string record = FrameOf(event);
  if (!WriteAll(file_.get(), record)) {
    const Status status = Cannot(path_, "write it");
    (void)!ftruncate(file_.get(), static_cast<off_t>(size_));
    return status;
  }
  size_ += record.size();
  return absl::OkStatus();
}

}  // namespace ringmaster::cli
