#include "cli/show/dataset_report.h"

#include <catch2/catch.hpp>

#include "tests/support/image_data.h"

namespace ringmaster::cli {
namespace {

DatasetStatistics SmallDataset() {
  DatasetStatistics dataset;
  dataset.path = "data/m";
  v1::DatasetFacts& facts = dataset.facts;
  facts.set_format("mnist");
  testing::SetImages(28, 20, 1, 2, &facts);
  facts.set_train_samples(12);
  facts.set_test_samples(3);
  v1::DataFile& file = *facts.add_files();
  file.set_name("train.bin");
  file.set_bytes(1234);
  file.set_samples(12);
  file.set_sha256("ab");
  *facts.add_files() = file;
  dataset.train.columns = {{{{33.25, 78.5}}, {}}, {{}, {10, 2}}};
  dataset.test.columns = {{{{1, 0}}, {}}, {{}, {0, 3}}};
  return dataset;
}

TEST_CASE("Dataset report: a dataset as JSON") {
  CHECK(ToJson(SmallDataset()).dump() ==
        R"({"path":"data/m","format":"mnist","bytes":2468,"train":{"samples":12},)"
        R"("test":{"samples":3},"columns":[{"name":"image","use":"input","type":"uint8",)"
        R"("shape":[28,20,1],"train":{"mean":[33.25],"standard_deviation":[78.5]},)"
        R"("test":{"mean":[1.0],"standard_deviation":[0.0]}},{"name":"label","use":"target",)"
        R"("type":"int32","shape":[],"limit":2,"train":{"class_samples":[10,2]},)"
        R"("test":{"class_samples":[0,3]}}],"files":[{"name":"train.bin","bytes":1234,)"
        R"("samples":12,"sha256":"ab"},{"name":"train.bin","bytes":1234,"samples":12,)"
        R"("sha256":"ab"}]})");
}

TEST_CASE("Dataset report: a dataset as text") {
  CHECK(RenderDataset(SmallDataset(), Terminal::Plain()) ==
        "dataset:   data/m\n"
        "format:    mnist\n"
        "samples:   12 train, 3 test\n"
        "bytes:     2468\n"
        "\n"
        "COLUMN  USE     TYPE   SHAPE        LIMIT  MEAN ± DEVIATION  IN TEST\n"
        "image   input   uint8  28 x 20 x 1         33.250 ± 78.500   1.000 ± 0.000\n"
        "label   target  int32               2\n"
        "\n"
        "CLASS OF label  TRAIN  TEST\n"
        "0               10     0\n"
        "1               2      3\n"
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
