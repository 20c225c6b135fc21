#include "common/data/sample_data.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "common/data/format.h"
#include "common/data/formats/gzip.h"
#include "common/data/record_index.h"
#include "common/data/survey.h"
#include "common/files.h"

namespace ringmaster::data {
namespace {

namespace fs = std::filesystem;

Status Check(const Format& format, const SampleDataOptions& options) {
  if (options.train == 0 || options.test == 0) {
    return InvalidArgument("{} training and {} test samples: at least one of each is needed",
                           options.train, options.test);
  }
  if (format.records != nullptr && std::min(options.train, options.test) < 10) {
    return InvalidArgument(
        "{} training and {} test samples: format {} has ten classes, each of which needs one",
        options.train, options.test, format.name);
  }
  // An IDX header's count; columns are drawn in memory.
  const uint64_t most = format.classes == 0 ? 10'000'000 : std::numeric_limits<uint32_t>::max();
  if (std::max(options.train, options.test) > most) {
    return InvalidArgument("{} training and {} test samples: at most {} of each", options.train,
                           options.test, most);
  }
  if (options.compression == Compression::kNone || format.may_be_gzipped) return absl::OkStatus();
  return InvalidArgument("files of format {} are never gzipped: leave --gzip out", format.name);
}

Status CreateFolder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return Error(absl::StatusCode::kUnavailable, "cannot create {}: {}", folder, error.message());
}

bool IsOf(const Format& format, std::string name) {
  if (format.may_be_gzipped && name.ends_with(".gz")) name.resize(name.size() - 3);
  return std::any_of(format.files.begin(), format.files.end(),
                     [&](const FileKind& kind) { return Matches(kind, name); });
}

Status CheckEmpty(const std::string& folder, const Format& format) {
  RING_ASSIGN_OR_RETURN(const OwnedFile opened, OpenFolder(folder));
  if (format.records != nullptr && format.records->is_there(opened)) {
    return Error(absl::StatusCode::kAlreadyExists,
                 "{} already holds data of format {}: nothing was written; choose another folder, "
                 "or remove it",
                 folder, format.name);
  }
  RING_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(opened));
  for (const std::string& name : names) {
    if (!IsOf(format, name)) continue;
    return Error(absl::StatusCode::kAlreadyExists,
                 "{} already holds {}: nothing was written; choose another folder, or remove it",
                 folder, name);
  }
  return absl::OkStatus();
}

// Header and records to `write`, until the file fails.
template <typename Write>
void Draw(const SampleFile& file, uint64_t seed, const std::ofstream& stream, const Write& write) {
  write(file.header);
  std::vector<uint8_t> record(file.record_bytes);
  for (uint64_t sample = file.begin; sample < file.end && stream; ++sample) {
    file.draw(seed, file.split, sample, record);
    write(record);
  }
}

Status WriteFile(const std::string& path, const SampleFile& file,
                 const SampleDataOptions& options) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  if (options.compression == Compression::kGzip) {
    GzipWriter gzip(&stream);
    Draw(file, options.seed, stream, [&](const auto& bytes) { gzip.Write(bytes); });
    gzip.Finish();
  } else if (file.whole) {
    const std::string bytes = file.whole(options.seed);
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  } else {
    Draw(file, options.seed, stream, [&](const auto& bytes) {
      stream.write(reinterpret_cast<const char*>(bytes.data()),
                   static_cast<std::streamsize>(bytes.size()));
    });
  }
  stream.close();
  const OwnedFile written(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (stream && written.get() >= 0 && fsync(written.get()) == 0) return absl::OkStatus();
  return Error(absl::StatusCode::kUnavailable, "cannot write {}: is the disk full?", path);
}

std::string TemporaryOf(const std::string& folder, const SampleFile& file) {
  const fs::path path = fs::path(folder) / file.name;
  return path.parent_path() / fmt::format(".{}.tmp", path.filename().string());
}

// Everything under temporary names, then the final names, so that a folder is never half a dataset
// that looks whole.
Status WriteFiles(const std::string& folder, const SampleDataOptions& options,
                  const std::vector<SampleFile>& files) {
  const std::string ending = options.compression == Compression::kGzip ? ".gz" : "";
  for (const SampleFile& file : files) {
    RING_RETURN_IF_ERROR(CreateFolder((fs::path(folder) / file.name).parent_path()));
    RING_RETURN_IF_ERROR(WriteFile(TemporaryOf(folder, file), file, options));
  }
  std::set<std::string> folders = {folder};
  for (const SampleFile& file : files) {
    const std::string path = folder + '/' + file.name + ending;
    folders.insert(fs::path(path).parent_path());
    std::error_code error;
    fs::rename(TemporaryOf(folder, file), path, error);
    if (error) {
      return Error(absl::StatusCode::kUnavailable, "cannot rename to {}: {}", path,
                   error.message());
    }
  }
  for (const std::string& changed : folders) RING_RETURN_IF_ERROR(SyncFolder(changed));
  return absl::OkStatus();
}

}  // namespace

Status MakeSampleData(const std::string& folder, const SampleDataOptions& options) {
  RING_ASSIGN_OR_RETURN(const Format* const format, FindFormat(options.format));
  RING_RETURN_IF_ERROR(Check(*format, options));
  RING_RETURN_IF_ERROR(CreateFolder(folder));
  RING_RETURN_IF_ERROR(CheckEmpty(folder, *format));
  const std::vector<SampleFile> files =
      format->sample_files(options.train, options.test, options.seed);
  const Status written = WriteFiles(folder, options, files);
  if (!written.ok()) {
    std::error_code error;
    for (const SampleFile& file : files) fs::remove(TemporaryOf(folder, file), error);
  }
  return written;
}

}  // namespace ringmaster::data
