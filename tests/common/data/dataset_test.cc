#include "common/data/dataset.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "common/data/formats/image_formats.h"
#include "common/data/sample_data.h"
#include "common/sha256.h"
#include "tests/support/image_data.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::data {
namespace {

namespace fs = std::filesystem;

v1::DataSource Source(const std::string& path) {
  v1::DataSource source;
  source.set_format("cifar10");
  source.set_path(path);
  return source;
}

// A data root with the dataset `d` in it, and a state folder.
class DatasetFixture {
 public:
  DatasetFixture() {
    CHECK(MakeSampleData(root_ / "data/d", {.train = 7, .test = 3, .seed = 1}).ok());
    fs::create_directory(root_ / "state");
  }
  std::string File(const std::string& name) const { return root_ / "data/d/" + name; }
  DatasetFolders folders() const { return {root_ / "data", root_ / "state"}; }
  StatusOr<std::shared_ptr<const Dataset>> Open(const std::string& path = "d") const {
    return Dataset::Open(folders(), Source(path));
  }
  // The error without its `dataset d under ROOT: `.
  std::string ErrorOf(const std::string& path = "d") const {
    const auto opened = Open(path);
    if (opened.ok()) return "opened";
    const std::string prefix = "dataset " + path + " under " + folders().data_root + ": ";
    const std::string message = Message(opened.status());
    CHECK(message.find(prefix) == 0);
    return message.substr(prefix.size());
  }

 protected:
  TemporaryFolder root_;
};

void Settle(const std::string& file) {
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(1));
}

TEST_CASE_METHOD(DatasetFixture, "Dataset: facts name every file with its counts and SHA-256") {
  const auto dataset = Open();
  INFO(dataset.status());
  REQUIRE(dataset.ok());
  const v1::DatasetFacts& facts = (*dataset)->facts();
  CHECK(facts.format() == "cifar10");
  CHECK(facts.train_samples() == 7);
  CHECK(facts.test_samples() == 3);
  REQUIRE(facts.columns_size() == 2);
  CHECK(facts.columns(0).ShortDebugString() ==
        "name: \"image\" type: ELEMENT_TYPE_UINT8 shape: 32 shape: 32 shape: 3 use: "
        "COLUMN_USE_INPUT");
  CHECK(facts.columns(1).ShortDebugString() ==
        "name: \"label\" type: ELEMENT_TYPE_INT32 limit: 10 use: COLUMN_USE_TARGET");
  REQUIRE(facts.files_size() == 6);
  for (const v1::DataFile& file : facts.files()) {
    CHECK(file.sha256() == *Sha256HexOfFile(File(file.name())));
    CHECK(file.bytes() == fs::file_size(File(file.name())));
    CHECK(file.bytes() == file.samples() * kCifar10RecordBytes);
  }
  CHECK(std::is_sorted(facts.files().begin(), facts.files().end(),
                       [](const auto& a, const auto& b) { return a.name() < b.name(); }));
}

TEST_CASE_METHOD(DatasetFixture, "Dataset: samples are read at random, across files") {
  const auto dataset = Open();
  REQUIRE(dataset.ok());
  std::string all;
  for (int i = 1; i <= 5; ++i) all += ReadWhole(File("data_batch_" + std::to_string(i) + ".bin"));
  std::vector<uint8_t> pixels(kCifarPixels), expected(kCifarPixels);
  for (const uint64_t sample : {6, 0, 3, 5, 1, 2, 4}) {
    const auto* record =
        reinterpret_cast<const uint8_t*>(all.data()) + sample * kCifar10RecordBytes;
    const auto label = testing::ReadImage(**dataset, Split::kTrain, sample, pixels);
    REQUIRE(label.ok());
    CHECK(*label == record[0]);
    PlanesToInterleaved({record + 1, kCifarPixels}, 3, expected);
    CHECK(pixels == expected);
  }
  CHECK(testing::ReadImage(**dataset, Split::kTest, 2, pixels).ok());
  CHECK(testing::ReadImage(**dataset, Split::kTest, 3, pixels).status().code() ==
        absl::StatusCode::kOutOfRange);
}

TEST_CASE_METHOD(DatasetFixture, "Dataset: what is missing is named") {
  CHECK(ErrorOf("nowhere") == "nowhere does not exist");
  CHECK(ErrorOf("d/test_batch.bin") == "d/test_batch.bin is not a folder");
  fs::remove(File("test_batch.bin"));
  CHECK(ErrorOf() == "there is no test file (test_batch.bin)");
  fs::create_directory(root_ / "data/empty");
  CHECK(ErrorOf("empty") == "there is no training file (data_batch_*.bin)");
  CHECK(Dataset::Open({root_ / "gone", ""}, Source("d")).status().code() ==
        absl::StatusCode::kNotFound);
  v1::DataSource png = Source("d");
  png.set_format("png");
  CHECK(Message(Dataset::Open(folders(), png).status()) ==
        "data.format: format \"png\" is not known; known: cifar10, cifar100, mnist, npy, npz, "
        "image_folder, tfrecord, webdataset, tokens, csv");
}

TEST_CASE_METHOD(DatasetFixture, "Dataset: without a format it is the one whose files are there") {
  v1::DataSource source = Source("d");
  source.clear_format();
  const auto dataset = Dataset::Open(folders(), source);
  REQUIRE(dataset.ok());
  CHECK((*dataset)->facts().format() == "cifar10");
  std::ofstream(File("train-images-idx3-ubyte")) << "also";
  CHECK_THAT(Message(Dataset::Open(folders(), source).status()),
             Catch::Contains("files of several formats: cifar10, mnist; say which"));
}

TEST_CASE_METHOD(DatasetFixture, "Dataset: a file of the wrong size is named with the remainder") {
  fs::resize_file(File("data_batch_2.bin"), kCifar10RecordBytes - 1);
  CHECK(ErrorOf() ==
        "data_batch_2.bin has 3072 bytes: not a whole number of cifar10 records of 3073 bytes "
        "(3072 bytes left over); it is truncated or of another format");
  fs::resize_file(File("data_batch_2.bin"), 2 * kCifar10RecordBytes + 5);
  CHECK(ErrorOf().find("(5 bytes left over)") != std::string::npos);
  fs::resize_file(File("data_batch_2.bin"), 0);
  CHECK(ErrorOf() == "data_batch_2.bin is empty: a cifar10 file holds records");
}

TEST_CASE_METHOD(DatasetFixture, "Dataset: a label out of range is named with its record") {
  std::string bytes = ReadWhole(File("test_batch.bin"));
  bytes[2 * kCifar10RecordBytes] = 10;
  WriteWhole(File("test_batch.bin"), bytes);
  CHECK(ErrorOf() == "test_batch.bin record 2: label 10 is not in 0 to 9");
}

TEST_CASE_METHOD(DatasetFixture, "Dataset: no path leads out of the data root") {
  fs::create_directory(root_ / "outside");
  CHECK(MakeSampleData(root_ / "outside/d", {.train = 1, .test = 1, .seed = 1}).ok());
  fs::create_directory_symlink(root_ / "outside/d", root_ / "data/absolute");
  fs::create_directory_symlink("../outside/d", root_ / "data/relative");
  for (const std::string path : {"../outside/d", "absolute", "relative", "d/../../outside/d"}) {
    CHECK(ErrorOf(path) == path + " leads out of its folder by `..` or a symbolic link");
  }
  CHECK(ErrorOf(root_ / "outside/d").find("leads out of its folder") != std::string::npos);
  CHECK(ErrorOf(std::string("d\0x", 3)) == "a path holds a zero byte");
  fs::remove(File("test_batch.bin"));
  fs::create_symlink(root_ / "outside/d/test_batch.bin", File("test_batch.bin"));
  CHECK(ErrorOf() == "test_batch.bin leads out of its folder by `..` or a symbolic link");
}

TEST_CASE_METHOD(DatasetFixture, "Dataset: a pipe is no data file, and does not hang the check") {
  fs::remove(File("test_batch.bin"));
  REQUIRE(mkfifo(File("test_batch.bin").c_str(), 0600) == 0);
  CHECK(ErrorOf() == "test_batch.bin is not a regular file");
}

TEST_CASE_METHOD(DatasetFixture, "Dataset: a known file is not hashed again, a changed one is") {
  for (const auto& entry : fs::directory_iterator(root_ / "data/d")) Settle(entry.path());
  REQUIRE(Open().ok());
  const std::string cache = folders().state_dir + "/cifar10.sha256";
  std::string remembered = ReadWhole(cache);
  REQUIRE(std::count(remembered.begin(), remembered.end(), '\n') == 6);
  // What is remembered is believed: a mark in the cache comes back as the fact.
  const std::string real = *Sha256HexOfFile(File("test_batch.bin"));
  const std::string mark(64, '0');
  remembered.replace(remembered.find(real), 64, mark);
  WriteWhole(cache, remembered);
  CHECK((*Open())->facts().files(5).sha256() == mark);
  WriteWhole(File("test_batch.bin"), ReadWhole(File("test_batch.bin")));
  CHECK((*Open())->facts().files(5).sha256() == real);
}

TEST_CASE_METHOD(DatasetFixture, "Dataset: a file that just changed is not remembered yet") {
  REQUIRE(Open().ok());
  CHECK_FALSE(fs::exists(folders().state_dir + "/cifar10.sha256"));
}

TEST_CASE_METHOD(DatasetFixture,
                 "Dataset: who stops is not kept waiting, and what is known stays") {
  for (const auto& entry : fs::directory_iterator(root_ / "data/d")) Settle(entry.path());
  std::stop_source stop;
  stop.request_stop();
  const auto opened = Dataset::Open(folders(), Source("d"), stop.get_token());
  CHECK(opened.status().code() == absl::StatusCode::kCancelled);
  CHECK_FALSE(fs::exists(folders().state_dir + "/cifar10.sha256"));
  REQUIRE(Open().ok());
  const std::string known = ReadWhole(folders().state_dir + "/cifar10.sha256");
  CHECK_FALSE(Dataset::Open(folders(), Source("d"), stop.get_token()).ok());
  CHECK(ReadWhole(folders().state_dir + "/cifar10.sha256") == known);
}

TEST_CASE_METHOD(DatasetFixture, "Dataset: a broken memory costs time and nothing else") {
  for (const auto& entry : fs::directory_iterator(root_ / "data/d")) Settle(entry.path());
  WriteWhole(folders().state_dir + "/cifar10.sha256", "1 2 3 garbage\n\xff\xfe");
  CHECK(Open().ok());
  CHECK(Dataset::Open({folders().data_root, root_ / "no/such"}, Source("d")).ok());
  CHECK(Dataset::Open({folders().data_root, ""}, Source("d")).ok());
}

TEST_CASE_METHOD(DatasetFixture, "Dataset: a file that shrinks or changes in use is data loss") {
  const auto dataset = Open();
  REQUIRE(dataset.ok());
  std::vector<uint8_t> pixels(kCifarPixels);
  fs::resize_file(File("test_batch.bin"), kCifar10RecordBytes + 7);
  const auto read = testing::ReadImage(**dataset, Split::kTest, 1, pixels);
  CHECK(read.status().code() == absl::StatusCode::kDataLoss);
  CHECK(Message(read.status()) ==
        "test_batch.bin record 1: it ends early: it shrank while it was in use");
  // Of its former size, with bytes that any record may have.
  WriteWhole(File("test_batch.bin"), std::string(3 * kCifar10RecordBytes, '\x05'));
  // Two changes can fall into one tick of a file system's clock.
  const auto later = fs::file_time_type::clock::now() + std::chrono::hours(1);
  fs::last_write_time(File("test_batch.bin"), later);
  CHECK(Message(testing::ReadImage(**dataset, Split::kTest, 0, pixels).status()) ==
        "test_batch.bin record 0: the file changed while it was in use, so it is not the one that "
        "was compared with the other workers'");
}

}  // namespace
}  // namespace ringmaster::data
