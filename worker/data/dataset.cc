#include "worker/data/dataset.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "common/check.h"
#include "common/sha256.h"
#include "worker/data/hash_cache.h"

namespace ringmaster::worker {
namespace {

using data::kCifar10RecordBytes;
using data::Split;

Status DataLoss(const std::string& message) { return {absl::StatusCode::kDataLoss, message}; }

// Reads exactly `bytes` at `offset`; false with errno, which is 0 at the end of the file.
bool ReadAll(int descriptor, uint8_t* bytes, size_t count, uint64_t offset) {
  while (count > 0) {
    errno = 0;
    const ssize_t got = pread(descriptor, bytes, count, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes += got;
    count -= static_cast<size_t>(got);
    offset += static_cast<uint64_t>(got);
  }
  return true;
}

bool IsUnchanged(int descriptor, const FileIdentity& identity) {
  struct stat status = {};
  return fstat(descriptor, &status) == 0 && FileIdentity::Of(status) == identity;
}

std::string ReadProblem() {
  return errno == 0 ? "it ends early: it shrank while it was in use" : std::strerror(errno);
}

StatusOr<std::vector<std::string>> FileNames(const Descriptor& folder, Split split) {
  // A descriptor of its own, because closedir closes it.
  DIR* const listing = fdopendir(openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (listing == nullptr) {
    return Error(absl::StatusCode::kUnavailable, "cannot list it: {}", std::strerror(errno));
  }
  std::vector<std::string> names;
  while (const dirent* const entry = readdir(listing)) {
    if (data::IsCifar10File(entry->d_name, split)) names.emplace_back(entry->d_name);
  }
  closedir(listing);
  std::sort(names.begin(), names.end());
  return names;
}

Status CheckSize(const std::string& name, uint64_t bytes) {
  const uint64_t remainder = bytes % kCifar10RecordBytes;
  if (bytes > 0 && remainder == 0) return absl::OkStatus();
  if (bytes == 0) return FailedPrecondition("{} is empty: a cifar10 file holds records", name);
  return FailedPrecondition(
      "{} has {} bytes: not a whole number of cifar10 records of {} bytes ({} bytes left over); it "
      "is truncated or of another format",
      name, bytes, kCifar10RecordBytes, remainder);
}

// Reads a whole file once: its SHA-256, and every label.
StatusOr<std::string> HashAndCheck(const std::string& name, int descriptor, uint64_t samples) {
  constexpr uint64_t kAtOnce = 256;
  std::vector<uint8_t> records(kAtOnce * kCifar10RecordBytes);
  Sha256 hash;
  for (uint64_t first = 0; first < samples; first += kAtOnce) {
    const uint64_t count = std::min(kAtOnce, samples - first);
    if (!ReadAll(descriptor, records.data(), count * kCifar10RecordBytes,
                 first * kCifar10RecordBytes)) {
      return DataLoss(fmt::format("cannot read {}: {}", name, ReadProblem()));
    }
    for (uint64_t i = 0; i < count; ++i) {
      const uint8_t label = records[i * kCifar10RecordBytes];
      if (label < data::kCifar10Classes) continue;
      return FailedPrecondition("{} record {}: label {} is not in 0 to {}", name, first + i, label,
                                data::kCifar10Classes - 1);
    }
    hash.Update({records.data(), count * kCifar10RecordBytes});
  }
  return Hex(hash.Finish());
}

}  // namespace

StatusOr<std::shared_ptr<const Dataset>> Dataset::Open(const DatasetFolders& folders,
                                                       const v1::DataSource& source) {
  if (source.format() != "cifar10") {
    return InvalidArgument("data.format {} is not known; known: cifar10", source.format());
  }
  const auto annotate = [&](const Status& status) {
    return Annotate(status, fmt::format("dataset {} under {}", source.path(), folders.data_root));
  };
  std::shared_ptr<Dataset> dataset(new Dataset);
  const Status opened = dataset->OpenFiles(folders, source);
  if (!opened.ok()) return annotate(opened);
  return dataset;
}

Status Dataset::OpenFiles(const DatasetFolders& folders, const v1::DataSource& source) {
  RING_ASSIGN_OR_RETURN(const Descriptor root, OpenFolder(folders.data_root));
  RING_ASSIGN_OR_RETURN(const Descriptor folder, OpenBeneath(root, source.path(), Wanted::kFolder));
  HashCache cache(folders.state_dir);
  facts_.set_format(source.format());
  facts_.set_height(data::kCifarHeight);
  facts_.set_width(data::kCifarWidth);
  facts_.set_channels(data::kCifarChannels);
  facts_.set_classes(data::kCifar10Classes);
  RING_RETURN_IF_ERROR(OpenSplit(folder, Split::kTrain, &cache));
  RING_RETURN_IF_ERROR(OpenSplit(folder, Split::kTest, &cache));
  facts_.set_train_samples(samples(Split::kTrain));
  facts_.set_test_samples(samples(Split::kTest));
  std::sort(facts_.mutable_files()->begin(), facts_.mutable_files()->end(),
            [](const v1::DataFile& a, const v1::DataFile& b) { return a.name() < b.name(); });
  cache.Save();
  return absl::OkStatus();
}

Status Dataset::OpenSplit(const Descriptor& folder, Split split, HashCache* cache) {
  RING_ASSIGN_OR_RETURN(const std::vector<std::string> names, FileNames(folder, split));
  if (names.empty()) {
    return Error(
        absl::StatusCode::kNotFound, "there is no {}",
        split == Split::kTrain ? "training file (data_batch_*.bin)" : "test file (test_batch.bin)");
  }
  for (const std::string& name : names) {
    RING_ASSIGN_OR_RETURN(Descriptor file, OpenBeneath(folder, name, Wanted::kFile));
    struct stat status = {};
    RING_CHECK(fstat(file.get(), &status) == 0, "fstat of an open file");
    const FileIdentity identity = FileIdentity::Of(status);
    RING_RETURN_IF_ERROR(CheckSize(name, identity.size));
    const uint64_t count = identity.size / kCifar10RecordBytes;
    std::optional<std::string> sha256 = cache->Find(identity);
    if (!sha256) {
      RING_ASSIGN_OR_RETURN(sha256, HashAndCheck(name, file.get(), count));
      cache->Remember(identity, *sha256);
    }
    v1::DataFile* const fact = facts_.add_files();
    fact->set_name(name);
    fact->set_bytes(identity.size);
    fact->set_samples(count);
    fact->set_sha256(*sha256);
    std::vector<OpenFile>& files = split == Split::kTrain ? train_ : test_;
    files.push_back({name, std::move(file), samples(split), count, identity});
  }
  return absl::OkStatus();
}

uint64_t Dataset::samples(Split split) const {
  const std::vector<OpenFile>& of_split = files(split);
  return of_split.empty() ? 0 : of_split.back().first_sample + of_split.back().samples;
}

StatusOr<int32_t> Dataset::Read(Split split, uint64_t index, std::span<uint8_t> pixels) const {
  if (index >= samples(split)) {
    return Error(absl::StatusCode::kOutOfRange, "sample {} of {}", index, samples(split));
  }
  const std::vector<OpenFile>& of_split = files(split);
  const auto after = std::upper_bound(
      of_split.begin(), of_split.end(), index,
      [](uint64_t sample, const OpenFile& file) { return sample < file.first_sample; });
  const OpenFile& file = *std::prev(after);
  const uint64_t record = index - file.first_sample;
  std::array<uint8_t, kCifar10RecordBytes> bytes;
  if (!ReadAll(file.descriptor.get(), bytes.data(), bytes.size(), record * kCifar10RecordBytes)) {
    return DataLoss(fmt::format("{} record {}: {}", file.name, record, ReadProblem()));
  }
  // After the bytes were read, so that a change before them is seen. Labels were all checked.
  if (!IsUnchanged(file.descriptor.get(), file.identity)) {
    return DataLoss(
        fmt::format("{} record {}: the file changed while it was in use, so it is not the one that "
                    "was compared with the other workers'",
                    file.name, record));
  }
  data::PlanesToInterleaved(std::span<const uint8_t>(bytes).subspan(1), pixels);
  return bytes[0];
}

}  // namespace ringmaster::worker
