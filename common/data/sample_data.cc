#include "common/data/sample_data.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/data/sample_image.h"
#include "common/durable_file.h"

namespace ringmaster::data {
namespace {

namespace fs = std::filesystem;

// Samples [begin, end) of a split, and the file that they go to.
struct Part {
  std::string name;
  Split split;
  uint64_t begin, end;
};

std::vector<Part> PartsOf(const SampleDataOptions& options) {
  constexpr uint64_t kTrainFiles = 5;
  std::vector<Part> parts;
  const uint64_t files = std::min(kTrainFiles, options.train);
  for (uint64_t i = 0; i < files; ++i) {
    parts.push_back({fmt::format("data_batch_{}.bin", i + 1), Split::kTrain,
                     options.train * i / files, options.train * (i + 1) / files});
  }
  parts.push_back({"test_batch.bin", Split::kTest, 0, options.test});
  return parts;
}

Status CheckEmpty(const std::string& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!IsCifar10File(name, Split::kTrain) && !IsCifar10File(name, Split::kTest)) continue;
    return Error(absl::StatusCode::kAlreadyExists,
                 "{} already holds {}: nothing was written; choose another folder, or remove it",
                 folder, name);
  }
  if (!error) return absl::OkStatus();
  return Error(absl::StatusCode::kUnavailable, "cannot list {}: {}", folder, error.message());
}

Status WritePart(const std::string& path, const Part& part, uint64_t seed) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  std::vector<uint8_t> record(kCifar10RecordBytes);
  for (uint64_t sample = part.begin; sample < part.end && file; ++sample) {
    DrawSample(seed, part.split, sample, record);
    file.write(reinterpret_cast<const char*>(record.data()),
               static_cast<std::streamsize>(record.size()));
  }
  file.close();
  if (file) return absl::OkStatus();
  return Error(absl::StatusCode::kUnavailable, "cannot write {}: is the disk full?", path);
}

std::string TemporaryOf(const std::string& folder, const Part& part) {
  return fmt::format("{}/.{}.tmp", folder, part.name);
}

// Everything under temporary names, then the final names, so that a folder is never half a dataset
// that looks whole.
Status WriteParts(const std::string& folder, const SampleDataOptions& options,
                  const std::vector<Part>& parts) {
  for (const Part& part : parts) {
    RING_RETURN_IF_ERROR(WritePart(TemporaryOf(folder, part), part, options.seed));
  }
  for (const Part& part : parts) {
    std::error_code error;
    fs::rename(TemporaryOf(folder, part), folder + '/' + part.name, error);
    if (error) {
      return Error(absl::StatusCode::kUnavailable, "cannot rename to {}/{}: {}", folder, part.name,
                   error.message());
    }
  }
  return SyncFolder(folder);
}

}  // namespace

Status MakeCifar10(const std::string& folder, const SampleDataOptions& options) {
  if (options.train == 0 || options.test == 0) {
    return InvalidArgument("{} training and {} test images: at least one of each is needed",
                           options.train, options.test);
  }
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return Error(absl::StatusCode::kUnavailable, "cannot create {}: {}", folder, error.message());
  }
  RING_RETURN_IF_ERROR(CheckEmpty(folder));
  const std::vector<Part> parts = PartsOf(options);
  const Status written = WriteParts(folder, options, parts);
  if (!written.ok()) {
    for (const Part& part : parts) fs::remove(TemporaryOf(folder, part), error);
  }
  return written;
}

}  // namespace ringmaster::data
