#include "common/data/verify.h"

#include <catch2/catch.hpp>

#include <filesystem>

#include "common/data/sample_data.h"
#include "common/data/statistics.h"
#include "common/sha256.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::data {
namespace {

namespace fs = std::filesystem;

class VerifyFixture {
 public:
  VerifyFixture() { REQUIRE(MakeSampleData(folder(), {.train = 6, .test = 2}).ok()); }
  std::string folder() const { return root_ / "d"; }
  std::string File(const std::string& name) const { return folder() + "/" + name; }
  std::vector<std::string> Problems(const std::optional<Sha256List>& list = {}) const {
    const auto verified = Verify(folder(), {}, list);
    return verified.ok() ? verified->problems
                         : std::vector<std::string>{"error: " + Message(verified.status())};
  }

 protected:
  TemporaryFolder root_;
};

v1::DataSource Of(const std::string& format) {
  v1::DataSource source;
  source.set_format(format);
  return source;
}

TEST_CASE_METHOD(VerifyFixture, "Verify: a whole dataset, and what its files are") {
  const auto verified = Verify(folder(), {}, {});
  REQUIRE(verified.ok());
  CHECK(verified->format == "cifar10");
  CHECK(verified->problems.empty());
  REQUIRE(verified->files.size() == 6);
  CHECK(verified->files[4].name == "data_batch_5.bin");
  CHECK(verified->files[4].samples == 2);
  CHECK(verified->files[4].bytes == 2 * 3073);
  CHECK(verified->files[4].sha256 == *Sha256HexOfFile(File("data_batch_5.bin")));
}

TEST_CASE_METHOD(VerifyFixture, "Verify: every problem of every file, and what can still be seen") {
  fs::remove(File("test_batch.bin"));
  fs::resize_file(File("data_batch_2.bin"), 100);
  WriteWhole(File("data_batch_4.bin"), std::string(3073, '\x30'));
  fs::remove(File("data_batch_5.bin"));
  fs::create_directory(File("data_batch_5.bin"));
  CHECK(Problems() ==
        std::vector<std::string>{
            "there is no test file (test_batch.bin)",
            "data_batch_2.bin has 100 bytes: not a whole number of cifar10 records of "
            "3073 bytes (100 bytes left over); it is truncated or of another format",
            "data_batch_4.bin record 0: label 48 is not in 0 to 9",
            "data_batch_5.bin is not a regular file"});
  const auto verified = Verify(folder(), Of("cifar10"), {});
  REQUIRE(verified.ok());
  CHECK(verified->files[1].bytes == 100);
  CHECK(verified->files[1].samples == std::nullopt);
  CHECK(verified->files[1].sha256 == *Sha256HexOfFile(File("data_batch_2.bin")));
  CHECK(verified->files[4].bytes == std::nullopt);
  CHECK(verified->files[4].sha256 == std::nullopt);
}

TEST_CASE_METHOD(VerifyFixture, "Verify: a list of SHA-256 is compared in both directions") {
  Sha256List list;
  for (const auto& entry : fs::directory_iterator(folder())) {
    list[entry.path().filename().string()] = *Sha256HexOfFile(entry.path());
  }
  CHECK(Problems(list).empty());
  const std::string real = list["test_batch.bin"], other(64, 'a');
  list["test_batch.bin"] = other;
  list.erase("data_batch_3.bin");
  list["data_batch_9.bin"] = other;
  CHECK(Problems(list) ==
        std::vector<std::string>{
            "data_batch_3.bin does not stand in the list of SHA-256",
            "test_batch.bin has the SHA-256 " + real + ", in the list stands " + other,
            "data_batch_9.bin stands in the list of SHA-256 and is not there"});
}

TEST_CASE_METHOD(VerifyFixture, "Verify: the format is found by the files, or one must be named") {
  CHECK(Verify(root_ / "gone", {}, {}).status().code() == absl::StatusCode::kNotFound);
  fs::create_directory(root_ / "empty");
  CHECK(Message(Verify(root_ / "empty", {}, {}).status()) ==
        root_ / "empty" +
            ": it holds no file of a known format: cifar10 (data_batch_*.bin), cifar100 "
            "(train.bin), mnist (train-images-idx3-ubyte), npy (train/*.npy), npz (train.npz), "
            "image_folder (train/CLASS/*.jpg or CLASS/*.jpg, or *.jpg alone), tfrecord "
            "(train-00000-of-00010 or "
            "*.tfrecord), webdataset (train-000000.tar or train/*.tar), tokens (train.bin), csv "
            "(train.csv); is it another folder?");
  REQUIRE(MakeSampleData(folder(), {.format = "cifar100", .train = 2, .test = 1}).ok());
  CHECK(Problems() == std::vector<std::string>{"error: " + folder() +
                                               ": it holds files of several formats: cifar10, "
                                               "cifar100; say which one is meant (data.format of a "
                                               "job, --format of `ringctl dataset`)"});
  CHECK(Verify(folder(), Of("cifar100"), {})->problems.empty());
}

TEST_CASE("SHA-256 list: what sha256sum prints") {
  const std::string a(64, 'a'), b(64, 'B');
  const auto list = ParseSha256List(a + "  one file\n\n" + b + " *./two\r\n");
  REQUIRE(list.ok());
  CHECK(*list == Sha256List{{"one file", a}, {"two", std::string(64, 'b')}});
  CHECK(Message(ParseSha256List(a + "  x\n" + a + "  x\n").status()) ==
        "line 2: x stands in the list twice");
  CHECK(Message(ParseSha256List("\n").status()) == "it is empty");
  for (const std::string& line : {a, a + "  ", a + " x", "g" + a.substr(1) + "  x"}) {
    CHECK(Message(ParseSha256List(line).status()).find("line 1: expected 64 hex digits") == 0);
  }
}

TEST_CASE("Statistics: classes, mean and deviation are those of the pixels") {
  const TemporaryFolder root;
  // Three images: red 10, 20, 30 in all pixels; green 0, 0, 255; blue 7.
  std::string train;
  for (int i = 0; i < 3; ++i) {
    train += static_cast<char>(i == 1 ? 4 : 9);
    train += std::string(1024, static_cast<char>(10 * (i + 1)));
    train += std::string(1024, static_cast<char>(i == 2 ? 255 : 0)) + std::string(1024, '\7');
  }
  fs::create_directory(root / "d");
  WriteWhole(root / "d/data_batch_1.bin", train);
  WriteWhole(root / "d/test_batch.bin", train.substr(0, 3073));
  v1::DataSource source;
  source.set_format("cifar10");
  source.set_path("d");
  const auto dataset = Dataset::Open({root.path(), ""}, source);
  REQUIRE(dataset.ok());
  const auto statistics = StatisticsOf(**dataset, Split::kTrain);
  REQUIRE(statistics.ok());
  REQUIRE(statistics->columns.size() == 2);
  CHECK(statistics->columns[1].class_samples ==
        std::vector<uint64_t>{0, 0, 0, 0, 1, 0, 0, 0, 0, 2});
  REQUIRE(statistics->columns[0].channels.size() == 3);
  CHECK(statistics->columns[0].channels[0].mean == 20);
  CHECK(statistics->columns[0].channels[0].deviation ==
        Approx(std::sqrt(200.0 / 3)).epsilon(1e-15));
  CHECK(statistics->columns[0].channels[1].mean == 85);
  CHECK(statistics->columns[0].channels[1].deviation ==
        Approx(std::sqrt(2 * 85.0 * 85)).epsilon(1e-15));
  CHECK(statistics->columns[0].channels[2].mean == 7);
  CHECK(statistics->columns[0].channels[2].deviation == 0);
}

}  // namespace
}  // namespace ringmaster::data
