#include <unistd.h>

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

#include "common/data/dataset.h"
#include "common/data/drawing.h"
#include "common/data/formats/gzip.h"
#include "common/data/formats/image_formats.h"
#include "common/data/sample_data.h"
#include "common/sha256.h"
#include "tests/common/data/big_endian.h"
#include "tests/support/image_data.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::data {
namespace {

namespace fs = std::filesystem;

constexpr char kTrainImages[] = "train-images-idx3-ubyte";
constexpr char kTrainLabels[] = "train-labels-idx1-ubyte";
constexpr char kTestImages[] = "t10k-images-idx3-ubyte";
constexpr char kTestLabels[] = "t10k-labels-idx1-ubyte";

void WriteGzipped(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  GzipWriter gzip(&file);
  gzip.Write({reinterpret_cast<const uint8_t*>(content.data()), content.size()});
  gzip.Finish();
}

// Five training and three test digits.
class MnistFixture {
 public:
  MnistFixture() { Make(Compression::kNone); }
  void Make(Compression compression) {
    fs::remove_all(folder_ / "d");
    REQUIRE(MakeSampleData(
                folder_ / "d",
                {.format = "mnist", .train = 5, .test = 3, .seed = 2, .compression = compression})
                .ok());
  }
  std::string File(const std::string& name) const { return folder_ / ("d/" + name); }
  StatusOr<std::shared_ptr<const Dataset>> Open() const {
    v1::DataSource source;
    source.set_format("mnist");
    source.set_path("d");
    return Dataset::Open({folder_.path(), ""}, source);
  }
  // The error without its `dataset d under ROOT: `.
  std::string ErrorOf() const {
    const auto opened = Open();
    if (opened.ok()) return "opened";
    const std::string message = Message(opened.status());
    const std::string prefix = "dataset d under " + folder_.path() + ": ";
    CHECK(message.find(prefix) == 0);
    return message.substr(prefix.size());
  }
  // The error when a file of the plain dataset has other bytes.
  std::string ErrorWith(const std::string& name, const std::string& bytes) const {
    const std::string former = ReadWhole(File(name));
    WriteWhole(File(name), bytes);
    std::string error = ErrorOf();
    WriteWhole(File(name), former);
    return error;
  }

 protected:
  TemporaryFolder folder_;
};

TEST_CASE_METHOD(MnistFixture, "MNIST: facts and samples, plain and gzipped") {
  const Compression compression = GENERATE(Compression::kNone, Compression::kGzip);
  Make(compression);
  const std::string ending = compression == Compression::kGzip ? ".gz" : "";
  const auto dataset = Open();
  INFO(dataset.status());
  REQUIRE(dataset.ok());
  const v1::DatasetFacts& facts = (*dataset)->facts();
  CHECK(facts.format() == "mnist");
  CHECK(facts.train_samples() == 5);
  CHECK(facts.test_samples() == 3);
  REQUIRE(facts.columns_size() == 2);
  CHECK(facts.columns(0).ShortDebugString() ==
        "name: \"image\" type: ELEMENT_TYPE_UINT8 shape: 28 shape: 28 shape: 1 use: "
        "COLUMN_USE_INPUT");
  CHECK(facts.columns(1).ShortDebugString() ==
        "name: \"label\" type: ELEMENT_TYPE_INT32 limit: 10 use: COLUMN_USE_TARGET");
  REQUIRE(facts.files_size() == 4);
  CHECK(facts.files(0).name() == kTestImages + ending);
  CHECK(facts.files(0).samples() == 3);
  CHECK(facts.files(3).name() == kTrainLabels + ending);
  for (const v1::DataFile& file : facts.files()) {
    CHECK(file.bytes() == fs::file_size(File(file.name())));
    CHECK(file.sha256() == *Sha256HexOfFile(File(file.name())));
  }
  std::vector<uint8_t> pixels(784), expected(784);
  for (const uint64_t sample : {4, 0, 2}) {
    const auto label = testing::ReadImage(**dataset, Split::kTrain, sample, pixels);
    REQUIRE(label.ok());
    CHECK(*label == static_cast<int32_t>(SampleDigit(2, Split::kTrain, sample)));
    DrawSampleDigit(2, Split::kTrain, sample, expected);
    CHECK(pixels == expected);
  }
  CHECK(testing::ReadImage(**dataset, Split::kTest, 3, pixels).status().code() ==
        absl::StatusCode::kOutOfRange);
}

TEST_CASE_METHOD(MnistFixture, "MNIST: what is missing is named with both of its names") {
  fs::remove(File(kTestLabels));
  CHECK(ErrorOf() ==
        "there is no file of test labels (t10k-labels-idx1-ubyte or t10k-labels-idx1-ubyte.gz)");
}

TEST_CASE_METHOD(MnistFixture, "MNIST: a file that is there plain and gzipped is refused") {
  WriteGzipped(File(std::string(kTrainImages) + ".gz"), ReadWhole(File(kTrainImages)));
  CHECK(ErrorOf() ==
        "train-images-idx3-ubyte and train-images-idx3-ubyte.gz are both there: which one counts "
        "is not clear; remove one");
}

TEST_CASE_METHOD(MnistFixture, "MNIST: one file may be gzipped and another not") {
  const std::string labels = ReadWhole(File(kTrainLabels));
  fs::remove(File(kTrainLabels));
  WriteGzipped(File(std::string(kTrainLabels) + ".gz"), labels);
  CHECK(ErrorOf() == "opened");
}

TEST_CASE_METHOD(MnistFixture, "MNIST: every error of a header and of a size says what was found") {
  const std::string images = ReadWhole(File(kTrainImages)).substr(16);
  const std::string labels = ReadWhole(File(kTrainLabels)).substr(8);
  const struct {
    std::string file, bytes, error;
  } cases[] = {
      {kTrainImages, "", "ends after 0 bytes: an IDX header has 16; it is truncated"},
      {kTrainLabels, BigEndian({2049}), "ends after 4 bytes: an IDX header has 8; it is truncated"},
      {kTrainImages, BigEndian({2049, 5, 28, 28}) + images,
       "offset 0: the magic number is 2049, of an IDX images file it is 2051; that is a labels "
       "file"},
      {kTrainLabels, BigEndian({2051, 5}) + labels,
       "offset 0: the magic number is 2051, of an IDX labels file it is 2049; that is an images "
       "file"},
      {kTrainLabels, BigEndian({7, 5}) + labels,
       "offset 0: the magic number is 7, of an IDX labels file it is 2049; it is of another "
       "format"},
      {kTrainImages, BigEndian({2051, 0, 28, 28}),
       "offset 4: its header counts 0 samples; at least one is needed"},
      {kTrainImages, BigEndian({2051, 5, 0, 28}) + images,
       "offset 8: images of 0 rows and 28 columns; 1 to 1024 are expected"},
      {kTrainImages, BigEndian({2051, 5, 28, 1025}) + images,
       "offset 8: images of 28 rows and 1025 columns; 1 to 1024 are expected"},
      {kTrainImages, BigEndian({2051, 0xFFFFFFFF, 1024, 1024}) + images,
       "has 3936 bytes, for the 4294967295 samples of its header 4503599626321936 are expected: it "
       "is truncated"},
      {kTrainLabels, BigEndian({2049, 5}) + labels + "xy",
       "has 15 bytes, for the 5 samples of its header 13 are expected: 2 bytes follow its end"},
      {kTrainLabels, BigEndian({2049, 5}) + labels.substr(0, 3) + "\x0b\x0a",
       "record 3: label 11 is not in 0 to 9 (the first of 2 such labels)"},
  };
  for (const auto& one : cases) {
    CHECK(ErrorWith(one.file, one.bytes) == one.file + " " + one.error);
  }
}

TEST_CASE_METHOD(MnistFixture, "MNIST: images and labels must be as many, images of one size") {
  CHECK(ErrorWith(kTrainLabels, BigEndian({2049, 4}) + std::string(4, '\1')) ==
        "train-images-idx3-ubyte has 5 samples of image, train-labels-idx1-ubyte has 4 of label "
        "(train): as many expected");
  CHECK(ErrorWith(kTestImages, BigEndian({2051, 3, 14, 28}) + std::string(3 * 14 * 28, '\1')) ==
        "t10k-images-idx3-ubyte has image of 14 x 28 x 1, train-images-idx3-ubyte of 28 x 28 x 1: "
        "all must be of one shape");
}

TEST_CASE_METHOD(MnistFixture, "MNIST: other rows and columns are allowed") {
  WriteWhole(File(kTrainImages), BigEndian({2051, 5, 3, 2}) + "abcdefghijklmnopqrstuvwxyzABCD");
  WriteWhole(File(kTestImages), BigEndian({2051, 3, 3, 2}) + std::string(18, 'z'));
  const auto dataset = Open();
  INFO(dataset.status());
  REQUIRE(dataset.ok());
  std::vector<uint8_t> pixels(6);
  REQUIRE(testing::ReadImage(**dataset, Split::kTrain, 1, pixels).ok());
  CHECK(std::string(pixels.begin(), pixels.end()) == "ghijkl");
}

TEST_CASE_METHOD(MnistFixture, "MNIST: what is wrong with a gzip file is said") {
  Make(Compression::kGzip);
  const std::string name = std::string(kTrainImages) + ".gz";
  const std::string whole = ReadWhole(File(name));
  std::string content = BigEndian({2051, 5, 28, 28}) + std::string(5 * 784, '\3');
  CHECK(ErrorWith(name, content) ==
        name + " is no gzip file (incorrect header check), but for its name");
  CHECK(
      ErrorWith(name, whole.substr(0, whole.size() - 3)) ==
      fmt::format("{} ends after {} bytes in the middle of its gzip stream: it is truncated; copy "
                  "it again",
                  name, whole.size() - 3));
  CHECK(ErrorWith(name, whole + "abc") == name + ": 3 bytes follow the end of its gzip stream");
  std::string damaged = whole;
  damaged[whole.size() - 8] = static_cast<char>(damaged[whole.size() - 8] ^ 1);
  CHECK(ErrorWith(name, damaged) ==
        fmt::format("{} near offset {}: its gzip stream is damaged (incorrect data check); copy it "
                    "again",
                    name, whole.size() - 4));
  const auto with = [&](const std::string& bytes) {
    WriteGzipped(File("x"), bytes);
    const std::string gzipped = ReadWhole(File("x"));
    return ErrorWith(name, gzipped);
  };
  CHECK(with(content) == "opened");
  CHECK(with(content.substr(1)).find(name + " offset 0: the magic number") == 0);
  CHECK(with(content.substr(0, 15)) ==
        name + " ends after 15 bytes: an IDX header has 16; it is truncated");
  CHECK(with(content.substr(0, 3000)) ==
        name + " holds 3000 bytes, by its header 3936: it is truncated");
  CHECK(with(content + "!") == name + " holds more than the 3936 bytes of its header");
}

TEST_CASE_METHOD(MnistFixture, "MNIST: a gzip file that claims too much is refused unread") {
  Make(Compression::kGzip);
  const std::string name = std::string(kTrainImages) + ".gz";
  WriteGzipped(File(name), BigEndian({2051, 3000, 1024, 1024}));
  CHECK(ErrorOf() ==
        name +
            ": by its header it holds 3145728016 bytes; a compressed file is kept in memory and "
            "may hold 2147483648: gunzip it, or split it");
  WriteGzipped(File(name), BigEndian({2051, 1000, 1024, 1024}));
  CHECK(ErrorOf() ==
        fmt::format("{}: by its header it holds 1048576016 bytes, more than {} bytes of "
                    "gzip can become",
                    name, fs::file_size(File(name))));
}

TEST_CASE_METHOD(MnistFixture, "MNIST: a folder, a pipe or a file without permission is an error") {
  fs::remove(File(kTestLabels));
  fs::create_directory(File(kTestLabels));
  CHECK(ErrorOf() == "t10k-labels-idx1-ubyte is not a regular file");
  fs::remove(File(kTestLabels));
  if (geteuid() == 0) return;  // root reads everything
  WriteWhole(File(kTestLabels), "");
  fs::permissions(File(kTestLabels), fs::perms::none);
  CHECK(ErrorOf() == "cannot open t10k-labels-idx1-ubyte: Permission denied");
}

TEST_CASE_METHOD(MnistFixture, "MNIST: a gzipped file in use may change, its samples do not") {
  Make(Compression::kGzip);
  const auto dataset = Open();
  REQUIRE(dataset.ok());
  for (const auto& entry : fs::directory_iterator(folder_ / "d")) WriteWhole(entry.path(), "");
  std::vector<uint8_t> pixels(784), expected(784);
  REQUIRE(testing::ReadImage(**dataset, Split::kTrain, 1, pixels).ok());
  DrawSampleDigit(2, Split::kTrain, 1, expected);
  CHECK(pixels == expected);
}

}  // namespace
}  // namespace ringmaster::data
