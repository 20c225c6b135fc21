// Whatever the bytes of a dataset are, opening and reading it ends in data or in a Status.
#include <catch2/catch.hpp>

#include <filesystem>
#include <map>
#include <random>

#include "common/data/dataset.h"
#include "common/data/formats/image_formats.h"
#include "common/data/sample_data.h"
#include "common/sha256.h"
#include "tests/support/sanitized.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::data {
namespace {

namespace fs = std::filesystem;

constexpr int kRounds = testing::kSanitized ? 25 : 250;

// All columns of all samples, in order.
StatusOr<std::string> AllSamples(const Dataset& dataset) {
  std::string all;
  for (const Split split : {Split::kTrain, Split::kTest}) {
    for (uint64_t sample = 0; sample < dataset.samples(split); ++sample) {
      for (int i = 0; i < dataset.facts().columns_size(); ++i) {
        std::string row(RowBytes(dataset.facts().columns(i)), '\0');
        RING_RETURN_IF_ERROR(dataset.Read(static_cast<size_t>(i), split, sample,
                                          std::as_writable_bytes(std::span(row))));
        all += row;
      }
    }
  }
  return all;
}

// A small dataset, one of whose files is broken, looked at and repaired again and again.
class Victim {
 public:
  Victim(const std::string& format, Compression compression) : format_(format) {
    REQUIRE(MakeSampleData(
                root_ / "d",
                {.format = format, .train = 11, .test = 4, .seed = 1, .compression = compression})
                .ok());
    for (const auto& entry : fs::recursive_directory_iterator(root_ / "d")) {
      if (!entry.is_regular_file()) continue;
      files_[entry.path().lexically_relative(root_ / "d").string()] = ReadWhole(entry.path());
    }
    samples_ = *AllSamples(**Open());
  }

  StatusOr<std::shared_ptr<const Dataset>> Open() const {
    v1::DataSource source;
    source.set_format(format_);
    source.set_path("d");
    if (format_ == "tokens") source.set_window(2);
    return Dataset::Open({root_.path(), ""}, source);
  }
  // With `bytes` in the place of a file: all samples, or why there are none.
  StatusOr<std::string> With(const std::string& file, const std::string& bytes) const {
    WriteWhole(root_ / ("d/" + file), bytes);
    StatusOr<std::string> samples = Look(file, bytes);
    WriteWhole(root_ / ("d/" + file), files_.at(file));
    return samples;
  }
  const std::map<std::string, std::string>& files() const { return files_; }
  const std::string& samples() const { return samples_; }

 private:
  StatusOr<std::string> Look(const std::string& file, const std::string& bytes) const {
    RING_ASSIGN_OR_RETURN(const std::shared_ptr<const Dataset> dataset, Open());
    for (const v1::DataFile& fact : dataset->facts().files()) {
      if (fact.name() == file && fact.sha256() != Hex(Sha256Of(bytes))) {
        return Internal("the fact's SHA-256 is not that of {}", file);
      }
    }
    return AllSamples(*dataset);
  }

  const std::string format_;
  TemporaryFolder root_;
  std::map<std::string, std::string> files_;
  std::string samples_;
};

// An error that names the file, with nothing that only our own code could have got wrong.
void CheckRefused(const StatusOr<std::string>& result, const std::string& file) {
  REQUIRE_FALSE(result.ok());
  CHECK((result.status().code() == absl::StatusCode::kFailedPrecondition ||
         result.status().code() == absl::StatusCode::kResourceExhausted));
  CHECK(Message(result.status()).find(file) != std::string::npos);
}

class Random {
 public:
  size_t Below(size_t bound) { return random_() % bound; }
  template <typename Map>
  auto Of(const Map& map) {
    return *std::next(map.begin(), static_cast<ptrdiff_t>(Below(map.size())));
  }
  char Flip() { return static_cast<char>(1 + Below(255)); }

 private:
  std::mt19937 random_{5};
};

struct CifarCase {
  const char* format;
  size_t record, label, classes;
};

TEST_CASE("Mutations: CIFAR files that are cut, lengthened or flipped") {
  const CifarCase one = GENERATE(CifarCase{"cifar10", kCifar10RecordBytes, 0, 10},
                                 CifarCase{"cifar100", kCifar100RecordBytes, 1, 100});
  const Victim victim(one.format, Compression::kNone);
  Random random;
  for (int round = 0; round < kRounds; ++round) {
    const auto [file, whole] = random.Of(victim.files());
    const size_t place = random.Below(whole.size());
    INFO(file << " at " << place << " in round " << round);
    const StatusOr<std::string> cut = victim.With(file, whole.substr(0, place));
    if (place == 0 || place % one.record != 0) CheckRefused(cut, file);
    CheckRefused(victim.With(file, whole + std::string(1 + random.Below(3000), '\7')), file);
    // Every third time a label, which a random place hardly ever is.
    const size_t at = round % 3 == 0 ? place / one.record * one.record + one.label : place;
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ random.Flip());
    const StatusOr<std::string> result = victim.With(file, flipped);
    const bool bad =
        at % one.record == one.label && static_cast<uint8_t>(flipped[at]) >= one.classes;
    if (bad) {
      CheckRefused(result, file);
    } else {
      REQUIRE(result.ok());
      // CIFAR-100's coarse label is not used.
      CHECK((*result == victim.samples()) == (at % one.record < one.label));
    }
  }
}

TEST_CASE("Mutations: IDX files that are cut, lengthened or flipped") {
  const Victim victim("mnist", Compression::kNone);
  Random random;
  for (int round = 0; round < kRounds; ++round) {
    const auto [file, whole] = random.Of(victim.files());
    const bool labels = file.find("labels") != std::string::npos;
    const size_t header = labels ? kIdxLabelsHeader : kIdxImagesHeader;
    // Every other time near the begin, where the header is.
    const size_t place = random.Below(round % 2 == 0 ? header + 3 : whole.size());
    INFO(file << " at " << place << " in round " << round);
    CheckRefused(victim.With(file, whole.substr(0, place)), file);
    CheckRefused(victim.With(file, whole + std::string(1 + random.Below(3000), '\7')), file);
    std::string flipped = whole;
    flipped[place] = static_cast<char>(flipped[place] ^ random.Flip());
    const StatusOr<std::string> result = victim.With(file, flipped);
    if (place < header || (labels && static_cast<uint8_t>(flipped[place]) > 9)) {
      CheckRefused(result, file);
    } else {
      REQUIRE(result.ok());
      CHECK(*result != victim.samples());
    }
  }
}

TEST_CASE("Mutations: gzipped IDX files that are cut, lengthened or flipped") {
  const Victim victim("mnist", Compression::kGzip);
  Random random;
  int refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto [file, whole] = random.Of(victim.files());
    const size_t place = random.Below(round % 2 == 0 ? 40 : whole.size()) % whole.size();
    INFO(file << " at " << place << " in round " << round);
    CheckRefused(victim.With(file, whole.substr(0, place)), file);
    CheckRefused(victim.With(file, whole + std::string(1 + random.Below(3000), '\7')), file);
    std::string flipped = whole;
    flipped[place] = static_cast<char>(flipped[place] ^ random.Flip());
    const StatusOr<std::string> result = victim.With(file, flipped);
    // A time stamp, or bits between the stream's end and its CRC, are nobody's.
    if (result.ok()) {
      CHECK(*result == victim.samples());
    } else {
      CheckRefused(result, file);
      ++refused;
    }
  }
  CHECK(refused > kRounds * 3 / 4);
}

TEST_CASE("Mutations: columns that are cut, lengthened or flipped") {
  const std::string format = GENERATE("npy", "npz");
  const Victim victim(format, Compression::kNone);
  Random random;
  int refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto [file, whole] = random.Of(victim.files());
    const size_t place = random.Below(round % 2 == 0 ? 128 : whole.size());
    INFO(file << " at " << place << " in round " << round);
    CheckRefused(victim.With(file, whole.substr(0, place)), file);
    CheckRefused(victim.With(file, whole + std::string(1 + random.Below(3000), '\7')), file);
    std::string flipped = whole;
    flipped[place] = static_cast<char>(flipped[place] ^ random.Flip());
    const StatusOr<std::string> result = victim.With(file, flipped);
    // An archive says the CRC-32 of its arrays; what may change in it is dates and the like.
    if (result.ok() && format == "npz") CHECK(*result == victim.samples());
    if (!result.ok()) ++refused;
  }
  CHECK(refused > kRounds / 4);
}

TEST_CASE("Mutations: texts and tokens that are cut, lengthened or flipped") {
  const std::string format = GENERATE("csv", "tokens");
  const Victim victim(format, Compression::kNone);
  Random random;
  int refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto [file, whole] = random.Of(victim.files());
    const size_t place = random.Below(whole.size());
    INFO(file << " at " << place << " in round " << round);
    std::string flipped = whole;
    flipped[place] = static_cast<char>(flipped[place] ^ random.Flip());
    for (const std::string& bytes :
         {whole.substr(0, place), whole + std::string(1 + random.Below(30), '\7'), flipped}) {
      const StatusOr<std::string> result = victim.With(file, bytes);
      if (result.ok()) continue;
      ++refused;
      CHECK(result.status().code() != absl::StatusCode::kInternal);
      CHECK(Message(result.status()).find(format == "csv" ? ".csv" : file) != std::string::npos);
    }
  }
  CHECK(refused > kRounds / 2);
}

TEST_CASE("Mutations: files of random bytes") {
  const std::string format = GENERATE("cifar10", "cifar100", "mnist", "npy", "npz", "csv");
  const Victim victim(format, format == "mnist" ? Compression::kGzip : Compression::kNone);
  Random random;
  for (int round = 0; round < 60; ++round) {
    const auto [file, whole] = random.Of(victim.files());
    std::string bytes(random.Below(5000), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random.Below(256));
    // Some with the begin of a real file, so that more than its magic number is looked at.
    if (round % 2 == 0) bytes.insert(0, whole.substr(0, random.Below(20)));
    CheckRefused(victim.With(file, bytes), file);
  }
}

}  // namespace
}  // namespace ringmaster::data
