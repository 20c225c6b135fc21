#include <fcntl.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/data/dataset.h"
#include "common/data/format.h"
#include "common/data/kept_files.h"
#include "common/data/record_index.h"
#include "common/data/sample_data.h"
#include "common/data/verify.h"
#include "common/image/codecs.h"
#include "tests/support/kept_files.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::data {
namespace {

namespace fs = std::filesystem;

// Images of one colour, which says which is which.
class ImageFolderFixture {
 public:
  void Write(const std::string& name, uint8_t grey, const image::Size& size = {8, 6}) {
    fs::create_directories(fs::path(folder_ / name).parent_path());
    const std::vector<uint8_t> pixels(size_t{size.height} * size.width * 3, grey);
    std::ofstream(folder_ / name, std::ios::binary) << image::EncodeJpeg(pixels, size, 3, 100);
  }
  // Two classes with two training and one test image each.
  void WriteAll() {
    Write("d/train/cat/b.jpg", 30);
    Write("d/train/cat/a.JPEG", 20);
    Write("d/train/dog/1.jpg", 40);
    Write("d/train/dog/0.jpg", 50, {8, 9});
    Write("d/val/cat/x.jpg", 60);
    Write("d/val/dog/y.jpg", 70);
  }
  // So that times of files do not change any more.
  void Age() {
    const auto before = fs::file_time_type::clock::now() - std::chrono::minutes(1);
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / "d")) {
      if (entry.is_regular_file()) fs::last_write_time(entry.path(), before);
    }
  }
  // A segment that says orientation 6, a quarter to the right, behind the begin of a JPEG.
  void Turn(const std::string& name) const {
    const std::string exif(
        "\xFF\xE1\0\x22"
        "Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0",
        36);
    std::string file = ReadWhole(folder_ / name);
    std::ofstream(folder_ / name, std::ios::binary) << file.insert(2, exif);
  }
  StatusOr<std::shared_ptr<const Dataset>> Open(const std::string& state_dir = "",
                                                v1::Exif exif = v1::EXIF_UNSPECIFIED,
                                                const std::stop_token& stop = {}) const {
    v1::DataSource source;
    source.set_path("d");
    source.set_exif(exif);
    return Dataset::Open({folder_.path(), state_dir}, source, stop);
  }
  std::string ErrorOf() const {
    const auto opened = Open();
    if (opened.ok()) return "opened";
    const std::string message = Message(opened.status());
    const std::string prefix = "dataset d under " + folder_.path() + ": ";
    CHECK(message.find(prefix) == 0);
    return message.substr(prefix.size());
  }
  std::string Path(const std::string& name) const { return folder_ / name; }

 private:
  TemporaryFolder folder_;
};

// Grey value and label of a sample.
std::pair<int, int> SampleOf(const Dataset& dataset, Split split, uint64_t sample) {
  const image::Size size = dataset.image_size(0, split, sample);
  std::vector<uint8_t> pixels(size_t{size.height} * size.width * 3);
  REQUIRE(dataset.ReadImage(0, split, sample, image::Whole(size), pixels).ok());
  int32_t label[1] = {};
  REQUIRE(dataset.Read(1, split, sample, std::as_writable_bytes(std::span(label))).ok());
  return {pixels[0], label[0]};
}

TEST_CASE_METHOD(ImageFolderFixture, "Image folder: classes by name, samples class by class") {
  WriteAll();
  const auto dataset = Open();
  REQUIRE(dataset.ok());
  const v1::DatasetFacts& facts = (*dataset)->facts();
  CHECK(facts.format() == "image_folder");
  CHECK(facts.train_samples() == 4);
  CHECK(facts.test_samples() == 2);
  CHECK(facts.index().files() == 6);
  CHECK(facts.index().classes() == 2);
  CHECK(facts.index().least_width() == 6);
  CHECK(facts.index().most_width() == 9);
  REQUIRE(facts.columns_size() == 2);
  CHECK(facts.columns(0).name() == "image");
  CHECK(facts.columns(0).shape(0) == 0);  // sizes differ
  CHECK(facts.columns(1).limit() == 2);
  using Sample = std::pair<int, int>;
  CHECK(SampleOf(**dataset, Split::kTrain, 0) == Sample{20, 0});  // a.JPEG before b.jpg
  CHECK(SampleOf(**dataset, Split::kTrain, 1) == Sample{30, 0});
  CHECK(SampleOf(**dataset, Split::kTrain, 2) == Sample{50, 1});
  CHECK(SampleOf(**dataset, Split::kTrain, 3) == Sample{40, 1});
  CHECK(SampleOf(**dataset, Split::kTest, 1) == Sample{70, 1});
}

TEST_CASE_METHOD(ImageFolderFixture, "Image folder: order by folder, then by name") {
  for (const char* name : {"c/2.jpg", "c/a/1.jpg", "c/a-b/3.jpg", "c/1.jpg", "c/a/x/0.jpg"}) {
    Write(std::string("d/") + name, 100);
  }
  Write("d/.hidden/z.jpg", 1);
  Write("d/c/.DS_Store.jpg", 1);
  std::ofstream(Path("d/c/notes.txt")) << "no image";
  std::vector<std::string> names;
  const auto verified = Verify(Path("d"), {}, std::nullopt);
  REQUIRE(verified.ok());
  for (const VerifiedFile& file : verified->files) names.push_back(file.name);
  // As sorted(os.walk(...)) gives folders: `-` comes before `/`.
  CHECK(names ==
        std::vector<std::string>{"c/1.jpg", "c/2.jpg", "c/a/1.jpg", "c/a-b/3.jpg", "c/a/x/0.jpg"});
}

TEST_CASE_METHOD(ImageFolderFixture,
                 "Image folder: one size is the column's shape; no test split") {
  Write("d/cat/a.jpg", 1);
  Write("d/dog/a.jpg", 2);
  const auto dataset = Open();
  REQUIRE(dataset.ok());
  CHECK((*dataset)->facts().columns(0).shape(0) == 8);
  CHECK((*dataset)->facts().columns(0).shape(1) == 6);
  CHECK((*dataset)->facts().test_samples() == 0);
}

TEST_CASE_METHOD(ImageFolderFixture,
                 "Image folder: the index is remembered, and what changed is read") {
  WriteAll();
  Age();
  fs::create_directory(Path("state"));
  const auto first = Open(Path("state"));
  REQUIRE(first.ok());
  const std::string digest = (*first)->facts().index().sha256();
  CHECK((*Open())->facts().index().sha256() == digest);
  // What is remembered is not read: a file that lies about itself is not noticed at the start ...
  const std::string name = Path("d/train/dog/1.jpg");
  std::string bytes = ReadWhole(name);
  const auto time = fs::last_write_time(name);
  bytes[bytes.size() / 2] ^= 1;
  std::fstream(name, std::ios::binary | std::ios::in | std::ios::out) << bytes;
  fs::last_write_time(name, time);
  const auto again = Open(Path("state"));
  REQUIRE(again.ok());
  CHECK((*again)->facts().index().sha256() == digest);
  // ... but when it is used.
  std::vector<uint8_t> pixels(size_t{8} * 6 * 3);
  const Status read = (*again)->ReadImage(0, Split::kTrain, 3, image::Whole({8, 6}), pixels);
  CHECK(read.code() == absl::StatusCode::kDataLoss);
  CHECK(Message(read).find("train/dog/1.jpg at byte 0 (train sample 3): its CRC-32C is ") == 0);
  // A new one is seen, and a broken memory thrown away.
  Write("d/train/dog/2.jpg", 90);
  const auto more = Open(Path("state"));
  REQUIRE(more.ok());
  CHECK((*more)->samples(Split::kTrain) == 5);
  for (const auto& entry : fs::directory_iterator(Path("state"))) {
    std::fstream file(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(60);
    file.put('\x7f');
  }
  const auto reread = Open(Path("state"));
  REQUIRE(reread.ok());
  CHECK((*reread)->facts().index().sha256() == (*Open())->facts().index().sha256());
  CHECK((*reread)->facts().index().sha256() != (*more)->facts().index().sha256());
}

TEST_CASE("Image folder: a disk that fails is no bad image") {
  const auto format = FindFormat("image_folder");
  REQUIRE(format.ok());
  const OwnedFile shrunk(open("/dev/null", O_RDONLY | O_CLOEXEC));
  RecordFile file;
  file.bytes = 10;
  const auto found = (*format)->records->find({}, file, shrunk.get(), {});
  CHECK(found.status().code() == absl::StatusCode::kDataLoss);
  file.bytes = 0;  // that is one
  CHECK((*format)->records->find({}, file, shrunk.get(), {})->bad.size() == 1);
}

TEST_CASE_METHOD(ImageFolderFixture, "Image folder: files that are kept open leave most numbers") {
  for (int i = 0; i < 40; ++i) Write(fmt::format("d/train/cat/{}.jpg", i), 10);
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const auto kept_open = [&](rlim_t most) {
    const rlimit few = {most, before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
    const auto open = [] {
      return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
    };
    const auto others = open();
    const auto dataset = Open();
    REQUIRE(dataset.ok());
    CHECK(SampleOf(**dataset, Split::kTrain, 39).second == 0);
    return open() - others;
  };
  CHECK(kept_open(1024) == 41);  // and the folder
  CHECK(kept_open(128) == 1);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST_CASE_METHOD(ImageFolderFixture, "Image folder: who stops forgets nothing that was read") {
  WriteAll();
  Age();
  fs::create_directory(Path("state"));
  std::stop_source stop;
  stop.request_stop();
  const auto opened = Open(Path("state"), v1::EXIF_UNSPECIFIED, stop.get_token());
  CHECK(opened.status().code() == absl::StatusCode::kCancelled);
  CHECK(fs::is_empty(Path("state")));
  REQUIRE(Open(Path("state")).ok());
  const std::string memory = fs::directory_iterator(Path("state"))->path().string();
  const std::string known = ReadWhole(memory);
  CHECK_FALSE(Open(Path("state"), v1::EXIF_UNSPECIFIED, stop.get_token()).ok());
  CHECK(ReadWhole(memory) == known);
}

TEST_CASE_METHOD(ImageFolderFixture,
                 "Image folder: a state folder keeps the indexes that were used last") {
  WriteAll();
  Age();
  const std::string state = Path("state");
  fs::create_directory(state);
  REQUIRE(Open(state).ok());
  const std::string own = fs::directory_iterator(state)->path().string();
  const size_t most = KeptFiles().files;
  const auto old = testing::WriteOld(state, "tfrecord-", ".records", most + 3);
  // Opening the same again is using it, and writes nothing.
  testing::SetUsed(own, testing::kLongAgo - std::chrono::seconds(1));
  REQUIRE(Open(state).ok());
  CHECK(testing::NamesIn(state, ".records").size() == most + 4);
  REQUIRE(Open(state, v1::EXIF_APPLY).ok());
  CHECK(testing::NamesIn(state, ".records").size() == most);
  CHECK(fs::exists(own));
  for (size_t i = 0; i < most + 3; ++i) CHECK(fs::exists(old[i]) == (i >= 5));
}

TEST_CASE_METHOD(ImageFolderFixture, "Image folder: images are turned where the job says so") {
  WriteAll();
  Age();
  fs::create_directory(Path("state"));
  const auto index_of = [&](v1::Exif exif) {
    const auto dataset = Open(Path("state"), exif);
    REQUIRE(dataset.ok());
    CHECK((*Open("", exif))->facts().index().sha256() == (*dataset)->facts().index().sha256());
    return (*dataset)->facts().index();
  };
  // Of images of which none says it nothing changes.
  CHECK(index_of(v1::EXIF_APPLY).sha256() == index_of(v1::EXIF_IGNORE).sha256());
  Turn("d/train/dog/1.jpg");  // 8 x 6
  Age();
  CHECK(index_of(v1::EXIF_IGNORE).sha256() == index_of(v1::EXIF_UNSPECIFIED).sha256());
  CHECK(index_of(v1::EXIF_APPLY).sha256() != index_of(v1::EXIF_IGNORE).sha256());
  CHECK(index_of(v1::EXIF_APPLY).least_height() == 6);
  CHECK(index_of(v1::EXIF_IGNORE).least_height() == 8);
  const auto remembered = *Open(Path("state"), v1::EXIF_APPLY);
  CHECK(remembered->image_size(0, Split::kTrain, 3) == image::Size{6, 8});
  CHECK(SampleOf(*remembered, Split::kTrain, 3) == std::pair(40, 1));
}

TEST_CASE_METHOD(ImageFolderFixture, "Image folder: what is wrong is named") {
  WriteAll();
  REQUIRE(ErrorOf() == "opened");
  SECTION("an empty class") {
    fs::create_directory(Path("d/train/cow"));
    CHECK(ErrorOf() == "train/cow: the folder of a class without a .jpg, .jpeg or .png");
  }
  SECTION("a class that training has not") {
    Write("d/val/cow/a.jpg", 1);
    CHECK(ErrorOf() == "val/cow is a class that train/ has not");
  }
  SECTION("a class that evaluation has not") {
    fs::remove_all(Path("d/val/cat"));
    CHECK(ErrorOf() == "val/ has no class cat, which train/ has: labels would shift");
  }
  SECTION("two folders of test samples") {
    Write("d/test/cat/a.jpg", 1);
    CHECK(ErrorOf() ==
          "folders val and test are both there: which one holds the test samples is not clear; "
          "move one "
          "away");
  }
  SECTION("an image of another kind") {
    std::ofstream(Path("d/train/cat/c.webp")) << "RIFF";
    CHECK(ErrorOf() ==
          "train/cat/c.webp is an image of a kind that is not read: convert it to JPEG or PNG, or "
          "remove it");
  }
  SECTION("no image in spite of its name") {
    std::ofstream(Path("d/train/cat/c.jpg")) << "GIF89a";
    CHECK(ErrorOf() == "train/cat/c.jpg: it is neither JPEG nor PNG, but a GIF; convert it");
  }
  SECTION("an empty file") {
    std::ofstream(Path("d/train/cat/c.jpg")) << "";
    CHECK(ErrorOf() == "train/cat/c.jpg: it is empty");
  }
  SECTION("a link that leads out") {
    Write("elsewhere.jpg", 9);
    fs::create_symlink(Path("elsewhere.jpg"), Path("d/train/cat/c.jpg"));
    CHECK(ErrorOf().find("train/cat/c.jpg: ") == 0);
  }
  SECTION("a link that leads back") {
    fs::create_directory_symlink("..", Path("d/train/cat/up"));
    CHECK(ErrorOf().find("does a link lead back?") != std::string::npos);
  }
}

TEST_CASE_METHOD(ImageFolderFixture, "Image folder: every problem is listed by verify") {
  WriteAll();
  std::ofstream(Path("d/train/cat/a.JPEG")) << "";
  std::ofstream(Path("d/val/dog/y.jpg")) << "text";
  const auto verified = Verify(Path("d"), {}, std::nullopt);
  REQUIRE(verified.ok());
  CHECK(verified->files.size() == 6);
  REQUIRE(verified->problems.size() == 2);
  CHECK(verified->problems[0] == "train/cat/a.JPEG: it is empty");
}

TEST_CASE_METHOD(ImageFolderFixture, "Image folder: sample data, the same bytes each time") {
  const SampleDataOptions options = {.format = "image_folder", .train = 30, .test = 10, .seed = 3};
  REQUIRE(MakeSampleData(Path("d"), options).ok());
  REQUIRE(MakeSampleData(Path("e"), options).ok());
  const auto dataset = Open();
  REQUIRE(dataset.ok());
  CHECK((*dataset)->samples(Split::kTrain) == 30);
  CHECK((*dataset)->samples(Split::kTest) == 10);
  CHECK((*dataset)->facts().index().classes() == 10);
  for (const auto& entry : fs::recursive_directory_iterator(Path("d"))) {
    if (!entry.is_regular_file()) continue;
    const std::string other = Path("e") + entry.path().string().substr(Path("d").size());
    CHECK(ReadWhole(entry.path()) == ReadWhole(other));
  }
  CHECK(MakeSampleData(Path("d"), options).code() == absl::StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace ringmaster::data
