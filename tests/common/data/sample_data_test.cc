#include "common/data/sample_data.h"

#include <catch2/catch.hpp>

#include <array>
#include <filesystem>
#include <numeric>
#include <vector>

#include "common/data/sample_image.h"
#include "common/sha256.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::data {
namespace {

std::string Drawn(uint64_t seed, Split split, uint64_t first, uint64_t count) {
  std::string bytes(count * kCifar10RecordBytes, '\0');
  for (uint64_t i = 0; i < count; ++i) {
    DrawSample(
        seed, split, first + i,
        {reinterpret_cast<uint8_t*>(bytes.data()) + i * kCifar10RecordBytes, kCifar10RecordBytes});
  }
  return bytes;
}

TEST_CASE("Sample data: files hold the samples in order, in CIFAR-10's layout") {
  const TemporaryFolder root;
  const std::string folder = root / "a/cifar10";
  REQUIRE(MakeCifar10(folder, {.train = 12, .test = 3, .seed = 5}).ok());
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
  REQUIRE(MakeCifar10(folder.path(), {.train = 2, .test = 1, .seed = 0}).ok());
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
  const Status status = MakeCifar10(folder.path(), {.train = 1, .test = 1, .seed = 0});
  CHECK(status.code() == absl::StatusCode::kAlreadyExists);
  CHECK(Message(status) == folder.path() +
                               " already holds test_batch.bin: nothing was written; choose "
                               "another folder, or remove it");
  CHECK(ReadWhole(folder / "test_batch.bin") == "precious");
  CHECK_FALSE(std::filesystem::exists(folder / "data_batch_1.bin"));
}

TEST_CASE("Sample data: what cannot be made is refused") {
  const TemporaryFolder folder;
  CHECK(Message(MakeCifar10(folder.path(), {.train = 0, .test = 1, .seed = 0})) ==
        "0 training and 1 test images: at least one of each is needed");
  WriteWhole(folder / "file", "");
  CHECK(MakeCifar10(folder / "file/x", {}).code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("CIFAR-10: file names of the splits") {
  CHECK(IsCifar10File("data_batch_1.bin", Split::kTrain));
  CHECK(IsCifar10File("test_batch.bin", Split::kTest));
  for (const char* name : {"data_batch_.bin", "data_batch_1.bin.tmp", ".data_batch_1.bin.tmp",
                           "test_batch.bin", "batches.meta.txt"}) {
    CHECK_FALSE(IsCifar10File(name, Split::kTrain));
  }
  CHECK_FALSE(IsCifar10File("data_batch_1.bin", Split::kTest));
}

TEST_CASE("CIFAR-10: planes become interleaved pixels") {
  std::vector<uint8_t> planes(kCifarPixels), pixels(kCifarPixels);
  for (size_t i = 0; i < planes.size(); ++i) planes[i] = static_cast<uint8_t>(i / 1024 + i % 50);
  PlanesToInterleaved(planes, pixels);
  for (size_t i = 0; i < 1024; ++i) {
    for (size_t c = 0; c < 3; ++c) REQUIRE(pixels[3 * i + c] == planes[c * 1024 + i]);
  }
}

}  // namespace
}  // namespace ringmaster::data
