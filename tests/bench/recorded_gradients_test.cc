#include "bench/recorded_gradients.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/temporary_folder.h"

namespace ringmaster::bench {
namespace {

// Tensors of 300 and 5 numbers: three blocks.
RecordedGradients TwoShards() {
  RecordedGradients recorded;
  recorded.elements = {300, 5};
  recorded.unit_exponents = {-30, -40, 7};
  for (const float value : {0.5F, -0.25F}) recorded.shards.emplace_back(3 * 256, value);
  return recorded;
}

std::string ErrorOf(const RecordedGradients& recorded) {
  const TemporaryFolder folder;
  return Message(WriteGradients(recorded, folder / "step"));
}

TEST_CASE("Recorded gradients: what is written is read again") {
  const TemporaryFolder folder;
  const RecordedGradients written = TwoShards();
  REQUIRE(WriteGradients(written, folder / "step").ok());
  const auto read = ReadGradients(folder / "step");
  REQUIRE(read.ok());
  CHECK(read->elements == written.elements);
  CHECK(read->unit_exponents == written.unit_exponents);
  CHECK(read->shards == written.shards);
  const auto layout = LayoutOf(*read);
  REQUIRE(layout.ok());
  CHECK(layout->tensor(1).offset() == 512);
}

TEST_CASE("Recorded gradients: parts that do not agree are named") {
  RecordedGradients recorded = TwoShards();
  recorded.shards[1].pop_back();
  CHECK(ErrorOf(recorded) == "shard1 has 767 numbers, expected 768");
  recorded = TwoShards();
  recorded.unit_exponents.pop_back();
  CHECK(ErrorOf(recorded) == "2 unit_exponents, expected one for each of 3 blocks");
  recorded = TwoShards();
  recorded.unit_exponents[2] = 120;
  CHECK(ErrorOf(recorded) == "unit_exponents: expected -40 to 119, got 120");
  recorded.elements.clear();
  CHECK(ErrorOf(recorded) == "no tensor was recorded");
}

TEST_CASE("Recorded gradients: a file that is none, or is short, says so") {
  const TemporaryFolder folder;
  const std::string path = folder / "step";
  CHECK(ReadGradients(path).status().code() == absl::StatusCode::kUnavailable);
  REQUIRE(WriteGradients(TwoShards(), path).ok());
  std::ifstream file(path, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  for (const size_t bytes : {size_t{0}, size_t{4}, whole.size() / 2, whole.size() - 1}) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, bytes);
    INFO(bytes);
    CHECK(ReadGradients(path).status().code() == absl::StatusCode::kDataLoss);
  }
}

}  // namespace
}  // namespace ringmaster::bench
