// Files of Python's tarfile, with GNU's and pax's long names, are read in
// tests/integration/formats_test.py.
#include <catch2/catch.hpp>

#include <filesystem>

#include "common/data/dataset.h"
#include "common/data/sample_data.h"
#include "common/data/verify.h"
#include "common/image/codecs.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::data {
namespace {

namespace fs = std::filesystem;

std::string Picture(uint8_t grey, const image::Size& size = {8, 6}) {
  std::vector<uint8_t> pixels(size_t{size.height} * size.width * 3, grey);
  for (size_t i = 8 * 6 * 3; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * i / 7);
  return image::EncodeJpeg(pixels, size, 3, 100);
}

// A member of a tar file; what its header says of its length may be another thing.
std::string Member(const std::string& name, const std::string& bytes, const std::string& size = "",
                   char type = '0') {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  const std::string octal = size.empty() ? fmt::format("{:011o}", bytes.size()) : size;
  header.replace(124, octal.size(), octal);
  header.replace(148, 8, "        ");
  header[156] = type;
  header.replace(257, 5, "ustar");
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<uint8_t>(c);
  header.replace(148, 7, fmt::format("{:06o}", sum) + '\0');
  return header + bytes + std::string((512 - bytes.size() % 512) % 512, '\0');
}
std::string End() { return std::string(1024, '\0'); }

class TarFixture {
 public:
  TarFixture() { fs::create_directory(folder_ / "d"); }
  void Write(const std::string& name, const std::string& bytes) const {
    fs::create_directories(fs::path(folder_ / ("d/" + name)).parent_path());
    WriteWhole(folder_ / ("d/" + name), bytes);
  }
  StatusOr<std::shared_ptr<const Dataset>> Open() const {
    v1::DataSource source;
    source.set_path("d");
    return Dataset::Open({folder_.path(), ""}, source);
  }
  std::string ErrorOf() const {
    const auto opened = Open();
    if (opened.ok()) return "opened";
    const std::string prefix = "dataset d under " + folder_.path() + ": ";
    return Message(opened.status()).substr(prefix.size());
  }
  std::string ErrorOf(const std::string& bytes) const {
    Write("train-0.tar", bytes);
    return ErrorOf();
  }
  int32_t Label(Split split, uint64_t sample) const {
    int32_t label[1] = {};
    REQUIRE((*Open())->Read(1, split, sample, std::as_writable_bytes(std::span(label))).ok());
    return label[0];
  }

 protected:
  TemporaryFolder folder_;
};

TEST_CASE_METHOD(TarFixture, "WebDataset: neighbours of a name are a sample") {
  Write("train/a-000000.tar",
        Member("./", "", "", '5') + Member("x/1.jpg", Picture(10)) + Member("x/1.cls", "3\n") +
            Member("x/1.json", "{}") + Member("__meta__", "?") + Member("x/2.CLS", "0") +
            Member("x/2.JPEG", Picture(20)) + Member("link.jpg", "", "", '2') +
            Member("x/.DS_Store", "?") + End());
  Write("train/a-000001.tar", Member("x/1.jpg", Picture(30)) + Member("x/1.cls", "1") + End());
  Write("val/b.tar", Member("y.jpg", Picture(40)) + Member("y.cls", "2") + End());
  const auto dataset = Open();
  INFO(Message(dataset.status()));
  REQUIRE(dataset.ok());
  CHECK((*dataset)->facts().format() == "webdataset");
  CHECK((*dataset)->facts().train_samples() == 3);
  CHECK((*dataset)->facts().test_samples() == 1);
  CHECK((*dataset)->facts().columns(1).limit() == 4);
  CHECK(Label(Split::kTrain, 0) == 3);
  CHECK(Label(Split::kTrain, 1) == 0);
  CHECK(Label(Split::kTrain, 2) == 1);
  std::vector<uint8_t> pixels(size_t{8} * 6 * 3);
  REQUIRE((*dataset)->Read(0, Split::kTrain, 1, std::as_writable_bytes(std::span(pixels))).ok());
  CHECK(pixels[0] == 20);
}

TEST_CASE_METHOD(TarFixture, "WebDataset: what is wrong names file and sample") {
  const std::string image = Member("a.jpg", Picture(1)), label = Member("a.cls", "1");
  CHECK(ErrorOf(image + label + End()) == "opened");
  CHECK(ErrorOf(image + End()) ==
        "train-0.tar: sample a has .jpg; an image (.jpg, .jpeg or .png) and its class (.cls) are "
        "expected");
  CHECK(ErrorOf(image + Member("a.json", "{}") + End()).find("a class in a .json is not read") !=
        std::string::npos);
  CHECK(ErrorOf(image + image + label + End()) == "train-0.tar: sample a has two members .jpg");
  CHECK(ErrorOf(image + Member("a.png", "x") + label + End()) ==
        "train-0.tar: sample a has two images");
  CHECK(ErrorOf(image + label + Member("b.jpg", Picture(1)) + Member("b.cls", "0") + image + label +
                End())
            .find("train-0.tar: sample a comes twice") == 0);
  for (const char* text : {"cat", "-1", "", "2147483647", "99999999999", "1 2"}) {
    CHECK(ErrorOf(image + Member("a.cls", text) + End()) ==
          fmt::format("train-0.tar: sample a: its class is \"{}\": expected a whole number, 0 to "
                      "2147483646, in ASCII",
                      text));
  }
  CHECK(ErrorOf(End()) == "train-0.tar: there is no sample in it");
  CHECK(ErrorOf(Member("a.jpg", "no image") + label + End()).find("train-0.tar: sample a: ") == 0);
}

TEST_CASE_METHOD(TarFixture, "WebDataset: a sample has some members, not thousands") {
  std::string members = Member("a.jpg", Picture(1)) + Member("a.cls", "1");
  for (int i = 0; i < 62; ++i) members += Member(fmt::format("a.{}", i), "");
  Write("train-0.tar", members + End());
  CHECK(Open().ok());
  Write("train-0.tar", members + Member("a.more", "") + End());
  CHECK(ErrorOf() == "train-0.tar: sample a has more than 64 members");
}

TEST_CASE_METHOD(TarFixture, "WebDataset: files that are cut, damaged or huge are errors") {
  const std::string good = Member("a.jpg", Picture(1)) + Member("a.cls", "1") + End();
  REQUIRE(ErrorOf(good) == "opened");
  for (size_t size = 0; size < good.size() - 512; size += 100) {
    INFO(size);
    CHECK(ErrorOf(good.substr(0, size)) != "opened");
  }
  for (const size_t place : {0, 130, 150, 260}) {
    std::string flipped = good;
    flipped[place] = static_cast<char>(flipped[place] ^ 1);
    CHECK(ErrorOf(flipped).find("the sum of a header is another one") != std::string::npos);
  }
  CHECK(ErrorOf(Member("a.jpg", "x", "77777777777") + End())
            .find("has 8589934591 bytes, the file "
                  "has 1536 more") != std::string::npos);
  const std::string huge = std::string("\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12);
  CHECK(ErrorOf(Member("a.jpg", "x", huge) + End()).find("a header's size is no number") !=
        std::string::npos);
  CHECK(ErrorOf(good + good).find("something follows its end mark") != std::string::npos);
  CHECK(ErrorOf(Member("././@LongLink", std::string(5000, 'a'), "", 'L') + good)
            .find("at most 4096") != std::string::npos);
  for (const char* pax : {"", "99 path=x\n", "9 path=x", "x path=x\n", "11 size=cat\n"}) {
    if (*pax == '\0') continue;
    CHECK(ErrorOf(Member("pax", pax, "", 'x') + good).find("a pax header") != std::string::npos);
  }
  CHECK(ErrorOf(Member("a.jpg", "x", "", 'S') + End()).find("sparse") != std::string::npos);
}

TEST_CASE_METHOD(TarFixture, "WebDataset: which files belong together") {
  const std::string good = Member("a.jpg", Picture(1)) + Member("a.cls", "1") + End();
  Write("train-000.tar", good);
  Write("train-002.tar", good);
  CHECK(ErrorOf() == "train-002.tar does not follow number 0: one between is missing");
  fs::remove(folder_ / "d/train-002.tar");
  // By number, however many digits they have; and not every number is a shard's.
  for (int shard = 0; shard < 12; ++shard) Write(fmt::format("more-{}.tar", shard), good);
  for (const char* year : {"coco2014.tar", "coco2017.tar"}) Write(year, good);
  CHECK(Open().ok());
  fs::remove(folder_ / "d/more-9.tar");
  CHECK(ErrorOf() == "more-10.tar does not follow number 8: one between is missing");
  for (int shard = 0; shard < 12; ++shard) {
    fs::remove(folder_ / fmt::format("d/more-{}.tar", shard));
  }
  for (const char* year : {"d/coco2014.tar", "d/coco2017.tar"}) fs::remove(folder_ / year);
  Write("train-001.tar.gz", good);
  CHECK(ErrorOf().find("train-001.tar.gz is compressed as a whole") == 0);
  fs::remove(folder_ / "d/train-001.tar.gz");
  fs::rename(folder_ / "d/train-000.tar", folder_ / "d/val-000.tar");
  CHECK(ErrorOf().find("it holds no file of a known format") == 0);
}

TEST_CASE_METHOD(TarFixture, "Quarantine: what cannot be decoded is listed, and left out") {
  std::string cut = Picture(50, {64, 64});
  cut.resize(cut.size() - 20);  // its header is whole
  const std::string first = Member("a.jpg", Picture(1)) + Member("a.cls", "0");
  const std::string second = Member("b.jpg", cut) + Member("b.cls", "1");
  const std::string third = Member("c.jpg", "no image at all") + Member("c.cls", "2");
  Write("train-0.tar",
        first + second + third + Member("d.jpg", Picture(9)) + Member("d.cls", "3") + End());
  const auto verify = [&](Depth depth) {
    auto verified = Verify(folder_ / "d", {}, {}, depth);
    REQUIRE(verified.ok());
    return *std::move(verified);
  };
  CHECK(verify(Depth::kHeaders).problems.size() == 1);
  CHECK(verify(Depth::kDecode).problems.size() == 2);
  CHECK(ErrorOf().find("train-0.tar: sample c: ") == 0);
  const Verification listed = verify(Depth::kQuarantine);
  CHECK(listed.problems.empty());
  const std::string text = listed.undecodable.Text();
  const size_t b = first.size() + 512, c = first.size() + second.size() + 512;
  CHECK(text.find(fmt::format("train-0.tar\t{}\t# ", b)) == 0);
  CHECK(text.find(fmt::format("\ntrain-0.tar\t{}\t# sample c: ", c)) != std::string::npos);
  Write("quarantine.txt", text);
  const auto dataset = Open();
  INFO(Message(dataset.status()));
  REQUIRE(dataset.ok());
  CHECK((*dataset)->facts().train_samples() == 2);
  CHECK((*dataset)->facts().index().quarantined() == 2);
  CHECK(Label(Split::kTrain, 1) == 3);
  CHECK(verify(Depth::kDecode).problems.empty());
  CHECK(verify(Depth::kQuarantine).undecodable.Text() == text);
  // Reasons are comments; which samples are out is a part of what the data are.
  const std::string digest = (*dataset)->facts().index().sha256();
  Write("quarantine.txt", fmt::format("# all\ntrain-0.tar\t{}\ntrain-0.tar\t{}\t# bad\n", c, b));
  CHECK((*Open())->facts().index().sha256() == digest);
  Write("quarantine.txt", text + "train-0.tar\t512\n");
  CHECK((*Open())->facts().train_samples() == 1);
  CHECK((*Open())->facts().index().sha256() != digest);
}

TEST_CASE_METHOD(TarFixture, "Quarantine: a name that would be a comment is a problem") {
  Write("train/#1.tar", Member("a.jpg", "no image") + Member("a.cls", "0") +
                            Member("b.jpg", Picture(1)) + Member("b.cls", "0") + End());
  fs::rename(folder_ / "d/train", folder_ / "d/#train");
  const auto verified = Verify(folder_ / "d", {}, {}, Depth::kQuarantine);
  REQUIRE(verified.ok());
  REQUIRE(verified->problems.size() == 1);
  CHECK(verified->problems.front() ==
        "#train/#1.tar: a name that begins with # cannot stand in a list: rename it");
}

TEST_CASE_METHOD(TarFixture, "Quarantine: a list that does not fit the data is an error") {
  Write("train-0.tar", Member("a.jpg", Picture(1)) + Member("a.cls", "0") + End());
  const auto error = [&](const std::string& list) {
    Write("quarantine.txt", list);
    return ErrorOf();
  };
  CHECK(error("") == "opened");
  CHECK(error("train-0.tar\t513\n")
            .find("train-0.tar: quarantine.txt lists a sample at byte 513, "
                  "where there is none") == 0);
  CHECK(error("train-1.tar\t512\n")
            .find("quarantine.txt lists a sample of train-1.tar, which is no file of the data") ==
        0);
  CHECK(error("train-0.tar\t512\ntrain-0.tar\t512\n") ==
        "quarantine.txt: train-0.tar, byte 512 stands there twice");
  for (const char* line : {"train-0.tar", "train-0.tar\tx", "train-0.tar\t512 why", "\t512"}) {
    CHECK(error(fmt::format("# one\n{}\n", line)).find("quarantine.txt: line 2: expected a file") ==
          0);
  }
  CHECK(Verify(folder_ / "d", {}, {}, Depth::kQuarantine)->problems.empty());
}

}  // namespace
}  // namespace ringmaster::data
