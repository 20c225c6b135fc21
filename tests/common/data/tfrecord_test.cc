// Files of another writer are read in tests/integration/images_test.py.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

#include "common/data/dataset.h"
#include "common/data/formats/tf_example.h"
#include "common/data/sample_data.h"
#include "common/data/verify.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::data {
namespace {

namespace fs = std::filesystem;

std::span<const uint8_t> BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string TextOf(std::span<const uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

TEST_CASE("tf.Example: what is written is read") {
  const std::string example = WriteTfExample("picture", "bytes of it", "class", -3);
  const auto features = ParseTfExample(BytesOf(example));
  REQUIRE(features.ok());
  REQUIRE(features->size() == 2);
  CHECK(TextOf(FindFeature(*features, "picture")->bytes.at(0)) == "bytes of it");
  CHECK(FindFeature(*features, "class")->numbers == std::vector<int64_t>{-3});
  CHECK(FindFeature(*features, "other") == nullptr);
}

TEST_CASE("tf.Example: of a key the last entry counts, and of a feature its last kind") {
  const std::string both = WriteTfExample("image", "first", "label", 1) +
                           WriteTfExample("image", "second", "label", 2);  // messages merge
  const auto features = ParseTfExample(BytesOf(both));
  REQUIRE(features.ok());
  CHECK(TextOf(FindFeature(*features, "image")->bytes.at(0)) == "second");
  CHECK(FindFeature(*features, "label")->numbers == std::vector<int64_t>{2});
}

TEST_CASE("tf.Example: a cut one is an error, wherever it is cut") {
  const std::string example = WriteTfExample("image", "some bytes", "label", 1'000'000);
  for (size_t size = 1; size < example.size(); ++size) {
    CHECK_FALSE(ParseTfExample(BytesOf(example.substr(0, size))).ok());
  }
}

TEST_CASE("tf.Example: more features than any has are an error before they take memory") {
  std::string features;
  for (int i = 0; i < 20'000; ++i) features += std::string("\x0a\0", 2);
  std::string example = "\x0a";
  example += static_cast<char>(features.size() % 128 | 128);
  example += static_cast<char>(features.size() / 128 % 128 | 128);
  example += static_cast<char>(features.size() / 16384);
  const auto parsed = ParseTfExample(BytesOf(example + features));
  CHECK(Message(parsed.status()).find("more than 10000 features") != std::string::npos);
}

TEST_CASE("TFRecord: which files belong together") {
  TemporaryFolder folder;
  REQUIRE(MakeSampleData(folder / "d", {.format = "tfrecord", .train = 20, .test = 10}).ok());
  const auto problem = [&] {
    v1::DataSource source;
    source.set_format("tfrecord");
    const auto verified = Verify(folder / "d", source, std::nullopt);
    REQUIRE(verified.ok());
    return verified->problems.empty() ? "whole" : verified->problems.front();
  };
  CHECK(problem() == "whole");
  fs::copy(folder / "d/train-00003-of-00004", folder / "d/train-00003-of-00005");
  CHECK(problem() == "train-: shards of 4 and of 5 lie in one folder; keep one set");
  fs::remove(folder / "d/train-00003-of-00005");
  fs::rename(folder / "d/train-00000-of-00004", folder / "first.tfrecord");
  CHECK(problem() == "train-: 3 of 4 shards are there; shard 00000 is missing");
  for (int i = 1; i < 4; ++i) fs::remove(folder / fmt::format("d/train-0000{}-of-00004", i));
  // Numbers without zeros in front, of which names are in another order.
  for (int i = 0; i < 12; ++i) {
    fs::copy(folder / "first.tfrecord", folder / fmt::format("d/train-{}-of-12", i));
  }
  CHECK(problem() == "whole");
  for (int i = 0; i < 12; ++i) fs::remove(folder / fmt::format("d/train-{}-of-12", i));
  CHECK(problem().find("there is no record file of training samples") == 0);
  fs::create_directory(folder / "d/train");
  fs::rename(folder / "first.tfrecord", folder / "d/train/first.tfrecord");
  CHECK(problem() == "whole");
}

TEST_CASE("TFRecord: labels below the first one are an error") {
  TemporaryFolder folder;
  REQUIRE(MakeSampleData(folder / "d", {.format = "tfrecord", .train = 10, .test = 10}).ok());
  v1::DataSource source;
  source.set_path("d");
  source.set_first_label(2);
  const auto opened = Dataset::Open({folder.path(), ""}, source);
  CHECK(Message(opened.status()).find("record 0 at byte 0: label 1 is not in 2 to ") !=
        std::string::npos);
  source.set_first_label(0);
  CHECK((*Dataset::Open({folder.path(), ""}, source))->facts().columns(1).limit() == 11);
}

}  // namespace
}  // namespace ringmaster::data
