#include "common/data/formats/converted.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>

#include "common/check.h"
#include "common/data/kept_files.h"
#include "common/files.h"
#include "common/log.h"
#include "common/sha256.h"

namespace ringmaster::data {
namespace {

// ---- the end of a file: what its arrays are, a line each; the length of that; a SHA-256 ---------

constexpr char kRowsMagic[] = "ringmaster rows 1";
constexpr size_t kHexBytes = 64, kLengthBytes = 8;
constexpr uint64_t kMostEnd = uint64_t{64} << 20;

std::string EndOf(const FileLayout& layout) {
  std::string text = fmt::format("{}\n{}\n", kRowsMagic, fmt::join(layout.others, " "));
  for (const Array& array : layout.arrays) {
    text +=
        fmt::format("{} {} {} {} {} {} {} {} {} {}\n", array.column, array.samples, array.begin,
                    array.stride, static_cast<int>(array.number), array.limit, array.shape.size(),
                    fmt::join(array.shape, " "), array.parts.size(), fmt::join(array.parts, " "));
  }
  return text + fmt::format("{:08x}", text.size());
}

// Nothing where it is of another version.
std::optional<FileLayout> ParseEnd(const std::string& text, uint64_t bytes) {
  std::istringstream lines(text);
  std::string line, word;
  if (!std::getline(lines, line) || line != kRowsMagic || !std::getline(lines, line)) return {};
  FileLayout layout;
  layout.bytes = bytes;
  for (std::istringstream words(line); words >> word;) layout.others.push_back(word);
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    Array& array = layout.arrays.emplace_back();
    int number = 0;
    size_t axes = 0, parts = 0;
    words >> array.column >> array.samples >> array.begin >> array.stride >> number >>
        array.limit >> axes;
    array.number = static_cast<Number>(number);
    for (int64_t extent = 0; axes > 0 && words >> extent; --axes) array.shape.push_back(extent);
    for (words >> parts; parts > 0 && words >> word; --parts) array.parts.push_back(word);
    if (!words) return {};
  }
  return layout;
}

// ---- reading ------------------------------------------------------------------------------------

StatusOr<std::string> HashOf(int file, uint64_t bytes, const std::stop_token& stop) {
  Sha256 hash;
  std::vector<uint8_t> piece(size_t{1} << 20);
  for (uint64_t offset = 0; offset < bytes; offset += piece.size()) {
    RING_RETURN_IF_ERROR(StillWanted(stop));
    piece.resize(std::min<uint64_t>(piece.size(), bytes - offset));
    RING_RETURN_IF_ERROR(ReadExactly(file, offset, piece));
    hash.Update(piece);
  }
  return Hex(hash.Finish());
}

// FAILED_PRECONDITION: it is damaged, or of another version.
StatusOr<ConvertedFile> Reopen(const std::string& path, HashCache* cache) {
  ConvertedFile file;
  file.descriptor = OwnedFile(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat status = {};
  if (!file.descriptor.valid() || fstat(file.descriptor.get(), &status) != 0) {
    return Error(absl::StatusCode::kNotFound, "{}", std::strerror(errno));
  }
  MarkUsed(file.descriptor);
  file.identity = FileIdentity::Of(status);
  const uint64_t bytes = file.identity.size, tail = kHexBytes + kLengthBytes;
  const Status damaged = FailedPrecondition("it is damaged, or of another version");
  if (bytes < tail) return damaged;
  const int descriptor = file.descriptor.get();
  RING_ASSIGN_OR_RETURN(const std::string last, ReadExactly(descriptor, bytes - tail, tail));
  const uint64_t length = std::strtoull(last.substr(0, kLengthBytes).c_str(), nullptr, 16);
  if (length > bytes - tail || length > kMostEnd) return damaged;
  const std::string said = last.substr(kLengthBytes);
  const auto known = cache->Find(file.identity);
  if (!known) {
    RING_ASSIGN_OR_RETURN(const std::string sha256,
                          HashOf(descriptor, bytes - kHexBytes, cache->stop()));
    if (sha256 != said) return damaged;
    cache->Remember(file.identity, {sha256});
  }
  RING_ASSIGN_OR_RETURN(const std::string text,
                        ReadExactly(descriptor, bytes - tail - length, length));
  auto layout = ParseEnd(text, bytes - tail - length);
  if (!layout) return damaged;
  file.layout = *std::move(layout);
  return file;
}

// ---- writing ------------------------------------------------------------------------------------

Status CannotWrite(const std::string& path) {
  return Error(absl::StatusCode::kUnavailable, "cannot write {}: {}: is the disk full?", path,
               std::strerror(errno));
}

constexpr char kNamed[] = ".rows", kUnnamed[] = ".rows.";

// A file that goes away unless it gets a name.
class RowsWriter {
 public:
  explicit RowsWriter(const std::string& folder) : path_(folder + "/" + kUnnamed + "XXXXXX") {
    file_ = OwnedFile(mkostemp(path_.data(), O_CLOEXEC));
  }
  ~RowsWriter() {
    if (file_.valid()) unlink(path_.c_str());
  }
  RowsWriter(const RowsWriter&) = delete;
  RowsWriter& operator=(const RowsWriter&) = delete;

  [[nodiscard]] Status Append(std::span<const uint8_t> bytes) {
    hash_.Update(bytes);
    return WriteAll(file_.get(), bytes) ? absl::OkStatus() : CannotWrite(path_);
  }
  [[nodiscard]] Status Append(const std::string& text) {
    return Append({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
  [[nodiscard]] std::string Sha256() { return Hex(hash_.Finish()); }
  // Under `path`, durably.
  [[nodiscard]] Status Name(const std::string& path) {
    if (fsync(file_.get()) != 0 || std::rename(path_.c_str(), path.c_str()) != 0) {
      return CannotWrite(path);
    }
    path_ = path;
    return SyncFolder(std::filesystem::path(path).parent_path().string());
  }
  [[nodiscard]] bool valid() const { return file_.valid(); }
  [[nodiscard]] int get() const { return file_.get(); }
  // The file itself, under the name that it has.
  [[nodiscard]] OwnedFile Release() { return std::move(file_); }

 private:
  std::string path_;
  OwnedFile file_;
  ringmaster::Sha256 hash_;
};

}  // namespace

StatusOr<ConvertedFile> OpenConverted(
    const std::string& name, HashCache* cache,
    const std::function<StatusOr<FileLayout>(const Append& append)>& convert) {
  const bool kept = !cache->folder().empty();
  const std::string path = fmt::format("{}/{}{}", cache->folder(), name, kNamed);
  if (kept) {
    auto known = Reopen(path, cache);
    if (known.ok()) return known;
    if (known.status().code() != absl::StatusCode::kNotFound) {
      spdlog::warn("{}: {}: it is made again", path, Message(known.status()));
    }
  }
  std::error_code error;
  const std::string folder =
      kept ? cache->folder() : std::filesystem::temp_directory_path(error).string();
  if (error) {
    return Error(absl::StatusCode::kUnavailable,
                 "there is no folder for temporary files (TMPDIR): {}", error.message());
  }
  RowsWriter writer(folder);
  if (!writer.valid()) return CannotWrite("to " + folder);
  RING_ASSIGN_OR_RETURN(FileLayout layout, convert([&](std::span<const uint8_t> bytes) {
                          const Status wanted = StillWanted(cache->stop());
                          return wanted.ok() ? writer.Append(bytes) : wanted;
                        }));
  RING_RETURN_IF_ERROR(writer.Append(EndOf(layout)));
  RING_RETURN_IF_ERROR(writer.Append(writer.Sha256()));
  if (kept) {
    RING_RETURN_IF_ERROR(writer.Name(path));
    (void)writer.Release();
    auto written = Reopen(path, cache);
    DropOldest(cache->folder(), {.suffix = kNamed});
    return written;
  }
  struct stat status = {};
  RING_CHECK(fstat(writer.get(), &status) == 0, "fstat of an open file");
  ConvertedFile file;
  file.identity = FileIdentity::Of(status);
  file.layout = std::move(layout);
  file.descriptor = OwnedFile(dup(writer.get()));
  return file;
}

void SweepConversions(const std::string& state_dir) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (fs::directory_iterator at(state_dir, error), end; !error && at != end; at.increment(error)) {
    if (!at->path().filename().string().starts_with(kUnnamed)) continue;
    std::error_code ignored;
    fs::remove(at->path(), ignored);
  }
}

}  // namespace ringmaster::data
