#include "cli/dataset_report.h"

#include <catch2/catch.hpp>

namespace ringmaster::cli {
namespace {

DatasetStatistics SmallDataset() {
  DatasetStatistics dataset;
  dataset.path = "data/m";
  v1::DatasetFacts& facts = dataset.facts;
  facts.set_format("mnist");
  facts.set_height(28);
  facts.set_width(20);
  facts.set_channels(1);
  facts.set_classes(2);
  facts.set_train_samples(12);
  facts.set_test_samples(3);
  v1::DataFile& file = *facts.add_files();
  file.set_name("train.bin");
  file.set_bytes(1234);
  file.set_samples(12);
  file.set_sha256("ab");
  *facts.add_files() = file;
  dataset.train = {{10, 2}, {{33.25, 78.5}}};
  dataset.test = {{0, 3}, {{1, 0}}};
  return dataset;
}

TEST_CASE("Dataset report: a dataset as JSON") {
  CHECK(ToJson(SmallDataset()).dump() ==
        R"({"path":"data/m","format":"mnist","height":28,"width":20,"channels":1,"classes":2,)"
        R"("bytes":2468,"train":{"samples":12,"class_samples":[10,2],"mean":[33.25],)"
        R"("standard_deviation":[78.5]},"test":{"samples":3,"class_samples":[0,3],"mean":[1.0],)"
        R"("standard_deviation":[0.0]},"files":[{"name":"train.bin","bytes":1234,"samples":12,)"
        R"("sha256":"ab"},{"name":"train.bin","bytes":1234,"samples":12,"sha256":"ab"}]})");
}

TEST_CASE("Dataset report: a dataset as text") {
  CHECK(RenderDataset(SmallDataset(), Terminal::Plain()) ==
        "dataset:   data/m\n"
        "format:    mnist\n"
        "images:    28 x 20 x 1 (height, width, channels)\n"
        "classes:   2\n"
        "bytes:     2468\n"
        "\n"
        "SPLIT  SAMPLES  MEAN ± DEVIATION OF EACH CHANNEL\n"
        "train  12       33.250 ± 78.500\n"
        "test   3        1.000 ± 0.000\n"
        "\n"
        "CLASS  TRAIN  TEST\n"
        "0      10     0\n"
        "1      2      3\n"
        "\n"
        "FILE       SAMPLES  BYTES  SHA-256\n"
        "train.bin  12       1234   ab\n"
        "train.bin  12       1234   ab\n");
}

TEST_CASE("Dataset report: what was verified, with what is not known") {
  data::Verification verification;
  verification.format = "cifar10";
  verification.files = {{"a", 5, 1, "0a"}, {"b", std::nullopt, std::nullopt, std::nullopt}};
  CHECK(ToJson("d", verification)["ok"] == true);
  verification.problems = {"b is not a regular file"};
  CHECK(ToJson("d", verification).dump() ==
        R"({"path":"d","format":"cifar10","ok":false,"files":[{"name":"a","bytes":5,"samples":1,)"
        R"("sha256":"0a"},{"name":"b","bytes":null,"samples":null,"sha256":null}],)"
        R"("problems":["b is not a regular file"]})");
  CHECK(RenderSha256(verification) == "0a  a\n");
}

}  // namespace
}  // namespace ringmaster::cli
