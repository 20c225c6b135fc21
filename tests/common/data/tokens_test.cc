// Files of numpy's are read in tests/integration/formats_test.py.
#include <catch2/catch.hpp>

#include <chrono>
#include <filesystem>

#include "common/data/dataset.h"
#include "common/data/formats/npy.h"
#include "common/data/sample_data.h"
#include "common/data/survey.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::data {
namespace {

namespace fs = std::filesystem;

std::string Numbers(const std::vector<uint32_t>& values, size_t bytes) {
  std::string text;
  for (const uint32_t value : values) {
    for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  }
  return text;
}

std::vector<uint32_t> Counted(uint32_t count, uint32_t from = 0) {
  std::vector<uint32_t> values(count);
  for (uint32_t i = 0; i < count; ++i) values[i] = from + i;
  return values;
}

// llm.c's header: 256 int32.
std::string LlmcHeader(uint32_t magic, uint32_t version, uint32_t count) {
  std::string header = Numbers({magic, version, count}, 4);
  header.resize(1024);
  return header;
}

class TokensFixture {
 public:
  TokensFixture() {
    fs::create_directory(folder_ / "d");
    fs::create_directory(folder_ / "state");
    source_.set_path("d");
    source_.set_window(4);
  }
  void Write(const std::string& name, const std::string& bytes) const {
    WriteWhole(folder_ / ("d/" + name), bytes);
  }
  StatusOr<std::shared_ptr<const Dataset>> Open() const {
    return Dataset::Open({folder_.path(), folder_ / "state"}, source_);
  }
  std::string ErrorOf() const {
    const auto opened = Open();
    if (opened.ok()) return "opened";
    const std::string prefix = "dataset d under " + folder_.path() + ": ";
    return Message(opened.status()).substr(prefix.size());
  }
  std::vector<int32_t> Row(const Dataset& dataset, size_t column, Split split,
                           uint64_t sample) const {
    std::vector<int32_t> row(ElementsOf(dataset.facts().columns(static_cast<int>(column))));
    REQUIRE(dataset.Read(column, split, sample, std::as_writable_bytes(std::span(row))).ok());
    return row;
  }

 protected:
  TemporaryFolder folder_;
  v1::DataSource source_;
};

TEST_CASE_METHOD(TokensFixture, "Tokens: a sample is a window, its targets are one later") {
  Write("train.bin", Numbers(Counted(13), 2));  // (13 - 1) / 4 windows
  Write("val.bin", Numbers(Counted(6, 90), 2));
  const auto dataset = Open();
  INFO(Message(dataset.status()));
  REQUIRE(dataset.ok());
  const v1::DatasetFacts& facts = (*dataset)->facts();
  CHECK(facts.format() == "tokens");
  REQUIRE(facts.columns_size() == 2);
  CHECK(facts.columns(0).name() == "tokens");
  CHECK(facts.columns(0).use() == v1::COLUMN_USE_INPUT);
  CHECK(facts.columns(1).name() == "targets");
  CHECK(facts.columns(1).use() == v1::COLUMN_USE_TARGET);
  for (const v1::StoredColumn& column : facts.columns()) {
    CHECK(column.type() == v1::ELEMENT_TYPE_INT32);
    CHECK(column.shape(0) == 4);
    CHECK(column.limit() == 96);  // of both files
  }
  CHECK(facts.train_samples() == 3);
  CHECK(facts.test_samples() == 1);
  CHECK(Row(**dataset, 0, Split::kTrain, 2) == std::vector<int32_t>{8, 9, 10, 11});
  CHECK(Row(**dataset, 1, Split::kTrain, 2) == std::vector<int32_t>{9, 10, 11, 12});
  CHECK(Row(**dataset, 1, Split::kTest, 0) == std::vector<int32_t>{91, 92, 93, 94});
}

TEST_CASE_METHOD(TokensFixture, "Tokens: files with headers say what they hold, several count") {
  Write("web_train_000001.bin", LlmcHeader(20240520, 1, 9) + Numbers(Counted(9), 2));
  Write("web_train_000002.bin", LlmcHeader(20240801, 7, 6) + Numbers(Counted(6, 70'000), 4));
  Write("web_val_000000.bin", LlmcHeader(20240520, 1, 5) + Numbers(Counted(5), 2));
  const auto dataset = Open();
  INFO(Message(dataset.status()));
  REQUIRE(dataset.ok());
  CHECK((*dataset)->samples(Split::kTrain) == 3);  // no window reaches into the next file
  CHECK(Row(**dataset, 1, Split::kTrain, 2) ==
        std::vector<int32_t>{70'001, 70'002, 70'003, 70'004});
  CHECK((*dataset)->facts().columns(0).limit() == 70'006);
  source_.set_token_type(v1::TOKEN_TYPE_UINT16);
  CHECK(ErrorOf() ==
        "web_train_000002.bin: data.token_type is uint16, the file says uint32: leave the key out");
}

TEST_CASE_METHOD(TokensFixture, "Tokens: a .npy, and no test file") {
  const std::vector<uint8_t> header = WriteNpyHeader(Number::kInt32, std::vector<uint64_t>{9});
  Write("train.npy", std::string(header.begin(), header.end()) + Numbers(Counted(9, 5), 4));
  const auto dataset = Open();
  INFO(Message(dataset.status()));
  REQUIRE(dataset.ok());
  CHECK((*dataset)->samples(Split::kTrain) == 2);
  CHECK((*dataset)->samples(Split::kTest) == 0);
  CHECK(Row(**dataset, 0, Split::kTrain, 1) == std::vector<int32_t>{9, 10, 11, 12});
}

TEST_CASE_METHOD(TokensFixture, "Tokens: the largest is remembered with the file") {
  source_.set_format("tokens");
  Write("train.bin", Numbers(Counted(13), 2));
  fs::last_write_time(folder_ / "d/train.bin",
                      fs::file_time_type::clock::now() - std::chrono::minutes(1));
  REQUIRE(Open().ok());
  const std::string known = ReadWhole(folder_ / "state/tokens.sha256");
  CHECK(known.ends_with(" 12\n"));
  // What is remembered counts: nobody reads the file again.
  WriteWhole(folder_ / "state/tokens.sha256", known.substr(0, known.size() - 3) + "77\n");
  CHECK((*Open())->facts().columns(0).limit() == 78);
  source_.set_token_type(v1::TOKEN_TYPE_UINT32);  // and is not what a job of other tokens reads
  Write("train.bin", Numbers(Counted(13), 4));
  CHECK((*Open())->facts().columns(0).limit() == 13);
}

TEST_CASE_METHOD(TokensFixture, "Tokens: what is wrong with a file is said") {
  source_.set_format("tokens");
  Write("train.bin", Numbers(Counted(10), 2) + "x");
  CHECK(ErrorOf() ==
        "train.bin: it has 21 bytes, which is no whole number of uint16: it is truncated, or "
        "data.token_type is another one");
  Write("train.bin", Numbers(Counted(10), 4));
  CHECK(ErrorOf() ==
        "train.bin: every second token is 0, read as uint16: are they uint32 (data.token_type)?");
  Write("train.bin", Numbers(Counted(10, 300), 2));
  source_.set_token_type(v1::TOKEN_TYPE_UINT32);
  CHECK(ErrorOf().find("train.bin: its largest token is 20250932, read as uint32, and no "
                       "vocabulary has as many: are they uint16") == 0);
  Write("train.bin", Numbers({1, 2, 3, 0x80000000, 4, 5}, 4));
  CHECK(ErrorOf() ==
        "train.bin: token 3 is 2147483648, which is not in 0 to 2147483646: are they uint16 "
        "(data.token_type)?");
  source_.clear_token_type();
  Write("train.bin", Numbers({1, 2, 3, 4}, 2));
  CHECK(ErrorOf() ==
        "train.bin has 4 tokens; a window of 4 and the one that follows need 5: give data.window "
        "less");
  Write("train.bin", LlmcHeader(20240520, 1, 9) + Numbers(Counted(8), 2));
  CHECK(ErrorOf().find("train.bin: its header says 9 tokens of uint16, 1042 bytes in all; it has "
                       "1040 bytes") == 0);
  Write("train.bin", LlmcHeader(20240520, 2, 9) + Numbers(Counted(9), 2));
  CHECK(ErrorOf() == "train.bin: its header is of version 2; 1 is read");
  source_.clear_window();
  CHECK(ErrorOf().find("data.window: missing; format tokens needs it") == 0);
}

TEST_CASE_METHOD(TokensFixture, "Tokens: which files count") {
  Write("val.bin", Numbers(Counted(9), 2));
  CHECK(ErrorOf() == "there is no training file (train.bin)");
  Write("train.bin", Numbers(Counted(9), 2));
  CHECK(ErrorOf() == "opened");
  Write("test.bin", Numbers(Counted(9), 2));
  CHECK(ErrorOf() ==
        "test.bin and val.bin are both there: which one counts is not clear; remove one");
  fs::remove(folder_ / "d/val.bin");
  CHECK(Message(Open().status()).find("data.window") == std::string::npos);  // cifar100's names
  CHECK(ErrorOf() != "opened");
  source_.set_format("tokens");
  CHECK(ErrorOf() == "opened");
  Write("train.npy", "");
  CHECK(ErrorOf() ==
        "test.bin and train.npy are both there: which one counts is not clear; remove one");
}

TEST_CASE_METHOD(TokensFixture, "Tokens: sample data follow from what came before") {
  REQUIRE(MakeSampleData(folder_ / "d", {.format = "tokens", .train = 100, .test = 20}).ok());
  const auto dataset = Open();
  REQUIRE(dataset.ok());
  CHECK((*dataset)->samples(Split::kTrain) == 25);
  CHECK((*dataset)->samples(Split::kTest) == 5);
  CHECK((*dataset)->facts().columns(0).limit() == 64);
}

}  // namespace
}  // namespace ringmaster::data
