#include "common/data/sample_data.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <vector>

#include "common/data/dataset.h"
#include "common/data/drawing.h"
#include "common/data/formats/image_formats.h"
#include "common/sha256.h"
#include "tests/common/data/big_endian.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::data {
namespace {

std::span<uint8_t> Bytes(std::string* text) {
  return {reinterpret_cast<uint8_t*>(text->data()), text->size()};
}

std::string Drawn(uint64_t seed, Split split, uint64_t first, uint64_t count) {
  std::string bytes;
  for (uint64_t i = 0; i < count; ++i) {
    std::string image(kCifarPixels, '\0');
    bytes += static_cast<char>(
        DrawSampleImage({seed, split, first + i, kCifar10Classes}, Bytes(&image)));
    bytes += image;
  }
  return bytes;
}

std::string Digit(uint64_t seed, Split split, uint64_t sample) {
  std::string pixels(size_t{kMnistHeight} * kMnistWidth, '\0');
  DrawSampleDigit(seed, split, sample, Bytes(&pixels));
  return pixels;
}

TEST_CASE("Sample data: files hold the samples in order, in CIFAR-10's layout") {
  const TemporaryFolder root;
  const std::string folder = root / "a/cifar10";
  REQUIRE(MakeSampleData(folder, {.train = 12, .test = 3, .seed = 5}).ok());
  std::string train;
  for (int i = 1; i <= 5; ++i) {
    train += ReadWhole(folder + "/data_batch_" + std::to_string(i) + ".bin");
  }
  CHECK(train == Drawn(5, Split::kTrain, 0, 12));
  CHECK(ReadWhole(folder + "/test_batch.bin") == Drawn(5, Split::kTest, 0, 3));
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files += entry.path().empty() ? 0 : 1;
  }
  CHECK(files == 6);
}

TEST_CASE("Sample data: a handful of images makes as many files, never an empty one") {
  const TemporaryFolder folder;
  REQUIRE(MakeSampleData(folder.path(), {.train = 2, .test = 1, .seed = 0}).ok());
  CHECK(std::filesystem::file_size(folder / "data_batch_1.bin") == kCifar10RecordBytes);
  CHECK(std::filesystem::file_size(folder / "data_batch_2.bin") == kCifar10RecordBytes);
  CHECK_FALSE(std::filesystem::exists(folder / "data_batch_3.bin"));
}

TEST_CASE("Sample data: the bytes are the same on every machine and in every build") {
  CHECK(Hex(Sha256Of(Drawn(0, Split::kTrain, 0, 100))) ==
        "366d2b3900ef60f4d0db9c1604ec2f7b0ed2ba3582bf7f43378591d22f8397f1");
}

TEST_CASE("Sample data: seed, split and sample each change the image") {
  const std::string base = Drawn(0, Split::kTrain, 0, 1);
  CHECK(base == Drawn(0, Split::kTrain, 0, 1));
  CHECK(base != Drawn(1, Split::kTrain, 0, 1));
  CHECK(base != Drawn(0, Split::kTest, 0, 1));
  CHECK(base != Drawn(0, Split::kTrain, 1, 1));
}

TEST_CASE("Sample data: labels are spread evenly over the ten classes") {
  constexpr uint64_t kImages = 2000;
  const std::string bytes = Drawn(0, Split::kTrain, 0, kImages);
  std::array<int, kCifar10Classes> counts = {};
  for (uint64_t i = 0; i < kImages; ++i) {
    const auto label = static_cast<uint8_t>(bytes[i * kCifar10RecordBytes]);
    REQUIRE(label < kCifar10Classes);
    ++counts[label];
  }
  for (const int count : counts) CHECK(std::abs(count - 200) < 60);
}

TEST_CASE("Sample data: a folder that holds a dataset is left as it is") {
  const TemporaryFolder folder;
  WriteWhole(folder / "test_batch.bin", "precious");
  const Status status = MakeSampleData(folder.path(), {.train = 1, .test = 1, .seed = 0});
  CHECK(status.code() == absl::StatusCode::kAlreadyExists);
  CHECK(Message(status) == folder.path() +
                               " already holds test_batch.bin: nothing was written; choose "
                               "another folder, or remove it");
  CHECK(ReadWhole(folder / "test_batch.bin") == "precious");
  CHECK_FALSE(std::filesystem::exists(folder / "data_batch_1.bin"));
}

TEST_CASE("Sample data: what cannot be made is refused") {
  const TemporaryFolder folder;
  CHECK(Message(MakeSampleData(folder.path(), {.train = 0, .test = 1, .seed = 0})) ==
        "0 training and 1 test samples: at least one of each is needed");
  WriteWhole(folder / "file", "");
  CHECK(MakeSampleData(folder / "file/x", {}).code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("Sample data: CIFAR-100 has two labels a record, each pattern with each axis of colour") {
  const TemporaryFolder folder;
  REQUIRE(MakeSampleData(folder.path(), {.format = "cifar100", .train = 300, .test = 2}).ok());
  const std::string train = ReadWhole(folder / "train.bin");
  REQUIRE(train.size() == 300 * kCifar100RecordBytes);
  CHECK(ReadWhole(folder / "test.bin").size() == 2 * kCifar100RecordBytes);
  std::set<int> classes;
  for (size_t i = 0; i < 300; ++i) {
    const std::string record = train.substr(i * kCifar100RecordBytes, kCifar100RecordBytes);
    std::string image(kCifarPixels, '\0');
    const uint32_t label = DrawSampleImage({0, Split::kTrain, i, kCifar100Classes}, Bytes(&image));
    REQUIRE(static_cast<uint8_t>(record[0]) == label / 5);
    REQUIRE(static_cast<uint8_t>(record[1]) == label);
    REQUIRE(record.substr(2) == image);
    classes.insert(static_cast<int>(label));
  }
  CHECK(classes.size() > 80);  // 300 draws of 100 miss five on average
  CHECK(*classes.rbegin() < 100);
}

TEST_CASE("Sample data: MNIST is images and labels apart, with IDX headers") {
  const TemporaryFolder folder;
  REQUIRE(
      MakeSampleData(folder.path(), {.format = "mnist", .train = 5, .test = 2, .seed = 3}).ok());
  std::string images = BigEndian({2051, 5, 28, 28}), labels = BigEndian({2049, 5});
  for (uint64_t i = 0; i < 5; ++i) {
    images += Digit(3, Split::kTrain, i);
    labels += static_cast<char>(SampleDigit(3, Split::kTrain, i));
  }
  CHECK(ReadWhole(folder / "train-images-idx3-ubyte") == images);
  CHECK(ReadWhole(folder / "train-labels-idx1-ubyte") == labels);
  CHECK(ReadWhole(folder / "t10k-images-idx3-ubyte").size() == 16 + 2 * 784);
  CHECK(ReadWhole(folder / "t10k-labels-idx1-ubyte").size() == 8 + 2);
}

TEST_CASE("Sample data: the bytes of the other formats are the same on every machine, too") {
  const TemporaryFolder folder;
  REQUIRE(MakeSampleData(folder.path(), {.format = "mnist", .train = 100, .test = 1}).ok());
  CHECK(*Sha256HexOfFile(folder / "train-images-idx3-ubyte") ==
        "db8b111702ed32f691fd712a074a19f894575151220f61c24c1f357914dc95a4");
  REQUIRE(MakeSampleData(folder.path(), {.format = "cifar100", .train = 100, .test = 1}).ok());
  CHECK(*Sha256HexOfFile(folder / "train.bin") ==
        "88b065c428d8579ade42fe25de835354278349d5264808a0591ed3f8bd732aa5");
}

TEST_CASE("Sample data: gzipped files hold no time stamp and no name") {
  const TemporaryFolder folder;
  const SampleDataOptions options = {
      .format = "mnist", .train = 3, .test = 1, .compression = Compression::kGzip};
  REQUIRE(MakeSampleData(folder / "a", options).ok());
  REQUIRE(MakeSampleData(folder / "b", options).ok());
  for (const FileKind& kind : (*FindFormat("mnist"))->files) {
    const std::string file = ReadWhole(folder / ("a/" + kind.name + ".gz"));
    CHECK(file.substr(0, 10) == std::string("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10));
    CHECK(file == ReadWhole(folder / ("b/" + kind.name + ".gz")));
    CHECK_FALSE(std::filesystem::exists(folder / ("a/" + kind.name)));
  }
  CHECK(MakeSampleData(folder / "a", {.format = "mnist"}).code() ==
        absl::StatusCode::kAlreadyExists);
  CHECK(Message(MakeSampleData(folder / "c", {.compression = Compression::kGzip})) ==
        "files of format cifar10 are never gzipped: leave --gzip out");
}

TEST_CASE("Formats: file names of the splits") {
  const auto is = [](const Format& format, const std::string& name, Split split) {
    return std::any_of(format.files.begin(), format.files.end(), [&](const FileKind& kind) {
      return kind.split == split && Matches(kind, name);
    });
  };
  CHECK(is(**FindFormat("cifar10"), "data_batch_1.bin", Split::kTrain));
  CHECK(is(**FindFormat("cifar10"), "test_batch.bin", Split::kTest));
  for (const char* name : {"data_batch_.bin", "data_batch_1.bin.tmp", ".data_batch_1.bin.tmp",
                           "test_batch.bin", "batches.meta.txt"}) {
    CHECK_FALSE(is(**FindFormat("cifar10"), name, Split::kTrain));
  }
  CHECK_FALSE(is(**FindFormat("cifar10"), "data_batch_1.bin", Split::kTest));
  CHECK(is(**FindFormat("cifar100"), "train.bin", Split::kTrain));
  CHECK_FALSE(is(**FindFormat("cifar100"), "test_batch.bin", Split::kTest));
  CHECK(is(**FindFormat("mnist"), "t10k-labels-idx1-ubyte", Split::kTest));
  CHECK(FormatNames() == std::vector<std::string>{"cifar10", "cifar100", "mnist", "npy", "npz",
                                                  "image_folder", "tfrecord", "webdataset",
                                                  "tokens", "csv"});
  CHECK(Message(FindFormat("png").status()) ==
        "format \"png\" is not known; known: cifar10, cifar100, mnist, npy, npz, image_folder, "
        "tfrecord, webdataset, tokens, csv");
}

TEST_CASE("CIFAR: planes become interleaved pixels") {
  std::vector<uint8_t> planes(kCifarPixels), pixels(kCifarPixels);
  for (size_t i = 0; i < planes.size(); ++i) planes[i] = static_cast<uint8_t>(i / 1024 + i % 50);
  PlanesToInterleaved(planes, 3, pixels);
  for (size_t i = 0; i < 1024; ++i) {
    for (size_t c = 0; c < 3; ++c) REQUIRE(pixels[3 * i + c] == planes[c * 1024 + i]);
  }
}

TEST_CASE("Sample data: records and tar files hold the folder of images, in other files") {
  TemporaryFolder folder;
  const auto open = [&](const std::string& format) {
    REQUIRE(MakeSampleData(folder / format, {.format = format, .train = 21, .test = 11}).ok());
    v1::DataSource source;
    source.set_path(format);
    const auto dataset = Dataset::Open({folder.path(), ""}, source);
    REQUIRE(dataset.ok());
    CHECK((*dataset)->facts().format() == format);
    return *dataset;
  };
  const auto records = open(GENERATE("tfrecord", "webdataset")), images = open("image_folder");
  CHECK(records->facts().index().files() == 6);
  CHECK(records->samples(Split::kTrain) == 21);
  CHECK(records->samples(Split::kTest) == 11);
  CHECK(records->facts().columns(1).limit() == 10);
  CHECK(records->facts().index().bytes() == images->facts().index().bytes());
}

}  // namespace
}  // namespace ringmaster::data
