// Files of Python's csv are read in tests/integration/formats_test.py.
#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <set>

#include "common/data/dataset.h"
#include "common/data/kept_files.h"
#include "common/data/sample_data.h"
#include "common/data/verify.h"
#include "tests/support/kept_files.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::data {
namespace {

namespace fs = std::filesystem;

class CsvFixture {
 public:
  CsvFixture() {
    fs::create_directory(folder_ / "d");
    fs::create_directory(folder_ / "state");
    source_.set_path("d");
  }
  void Write(const std::string& text, const std::string& name = "train.csv") const {
    WriteWhole(folder_ / ("d/" + name), text);
  }
  StatusOr<std::shared_ptr<const Dataset>> Open() const {
    return Dataset::Open({folder_.path(), kept_ ? folder_ / "state" : ""}, source_);
  }
  std::string ErrorOf() const {
    const auto opened = Open();
    if (opened.ok()) return "opened";
    const std::string prefix = "dataset d under " + folder_.path() + ": ";
    return Message(opened.status()).substr(prefix.size());
  }
  std::string ErrorOf(const std::string& text) const {
    Write(text);
    return ErrorOf();
  }
  // `x input float32 (2); y target int32 () 0..2`.
  std::string Columns() const {
    const auto dataset = Open();
    if (!dataset.ok()) return Message(dataset.status());
    std::string text;
    for (const v1::StoredColumn& column : (*dataset)->facts().columns()) {
      const bool whole = column.type() == v1::ELEMENT_TYPE_INT32;
      text += fmt::format("{}{} {} {}", text.empty() ? "" : "; ", column.name(),
                          column.use() == v1::COLUMN_USE_INPUT ? "input" : "target",
                          whole ? "int32" : "float32");
      if (column.shape_size() > 0) text += fmt::format(" ({})", column.shape(0));
      if (whole) text += fmt::format(" below {}", column.limit());
    }
    return text;
  }
  template <typename T>
  std::vector<T> Row(size_t column, uint64_t sample, Split split = Split::kTrain) const {
    const auto dataset = Open();
    REQUIRE(dataset.ok());
    std::vector<T> row(ElementsOf((*dataset)->facts().columns(static_cast<int>(column))));
    REQUIRE((*dataset)->Read(column, split, sample, std::as_writable_bytes(std::span(row))).ok());
    return row;
  }

 protected:
  TemporaryFolder folder_;
  v1::DataSource source_;
  bool kept_ = true;
};

TEST_CASE_METHOD(CsvFixture, "CSV: columns by name; what is no target is x") {
  Write("Sepal Length (cm),width,y\r\n1,+2.5,0\r\n -3e2 ,0.1,2\r\n\r\n");
  CHECK(Columns() == "x input float32 (2); y target int32 below 3");
  CHECK(Row<float>(0, 1) == std::vector<float>{-300, 0.1F});
  CHECK(Row<int32_t>(1, 1) == std::vector<int32_t>{2});
  source_.add_inputs("x");
  source_.add_inputs("width");
  CHECK(Columns() == "x input float32 (1); width input float32; y target int32 below 3");
  CHECK(Row<float>(1, 0) == std::vector<float>{2.5F});
  source_.clear_inputs();
  source_.add_targets("width");
  source_.add_targets("y");
  CHECK(Columns() == "x input float32 (1); width target float32; y target int32 below 3");
  CHECK(Row<float>(0, 0) == std::vector<float>{1});
  CHECK(Row<int32_t>(2, 1) == std::vector<int32_t>{2});
  source_.clear_targets();
  source_.add_targets("price");
  CHECK(ErrorOf() ==
        "data.targets: the data have no column \"price\"; they have x, sepal_length_cm, width, y");
}

TEST_CASE_METHOD(CsvFixture, "CSV: whole numbers without a point are classes, others are not") {
  Write("a,y\n1,3\n2,1.0\n");
  CHECK(Columns() == "x input float32 (1); y target float32");
  Write("a,y\n1,3\n2,-1\n");
  CHECK(Columns() == "x input float32 (1); y target float32");
  Write("a,y\n1,3\n2,2147483647\n");
  CHECK(Columns() == "x input float32 (1); y target float32");
  Write("a,y\n1,3\n2,2\n");
  Write("a,y\n1,9\n", "test.csv");
  CHECK(Columns() == "x input float32 (1); y target int32 below 10");
  Write("a,y\n1,0.5\n", "test.csv");
  CHECK(ErrorOf() ==
        "test.csv has y in float32, train.csv in int32: all must be whole numbers, or none");
}

TEST_CASE_METHOD(CsvFixture, "CSV: no header, another delimiter") {
  source_.mutable_csv()->set_header(false);
  source_.mutable_csv()->set_delimiter(";");
  source_.add_targets("c2");
  Write(
      "\xEF\xBB\xBF"
      "1;2;0\n3;4;1\n5;6;1");  // without a line break at the end
  CHECK(Columns() == "x input float32 (2); c2 target int32 below 2");
  CHECK(Row<float>(0, 0) == std::vector<float>{1, 2});
  CHECK(Row<float>(0, 2) == std::vector<float>{5, 6});
  source_.mutable_csv()->set_delimiter("tab");
  Write("1\t2\t0\n3\t4\t1\n");
  CHECK(Row<float>(0, 1) == std::vector<float>{3, 4});
  source_.mutable_csv()->set_delimiter("7");
  CHECK(ErrorOf().find("train.csv: data.csv.delimiter: \"7\" cannot stand between numbers") == 0);
}

TEST_CASE_METHOD(CsvFixture, "CSV: quotes around names and numbers") {
  Write("\"a, of \"\"b\"\"\",\"y\"\n\"1.5\",\"2\"\n");
  source_.add_inputs("a_of_b");
  source_.add_targets("y");
  CHECK(Columns() == "a_of_b input float32; y target int32 below 3");
  CHECK(Row<float>(0, 0) == std::vector<float>{1.5F});
}

TEST_CASE_METHOD(CsvFixture, "CSV: what is wrong names line and column") {
  CHECK(ErrorOf("") == "train.csv: it is empty");
  CHECK(ErrorOf("a,y\n") == "train.csv: there is no line of numbers in it");
  CHECK(ErrorOf("a,a\n1,2\n") == "train.csv: line 1: two columns are called a");
  CHECK(ErrorOf("a,y\n1,2\n3\n") == "train.csv: line 3: it has 1 fields, the first line has 2");
  CHECK(ErrorOf("a,y\n1,\n") ==
        "train.csv: line 2: column 2 (y): the field is empty: a number is expected");
  CHECK(ErrorOf("a,y\n1,cat\n").find("train.csv: line 2: column 2 (y): \"cat\" is no number") == 0);
  CHECK(ErrorOf("a,y\nnan,1\n").find("train.csv: line 2: column 1 (a): \"nan\" is no number") == 0);
  CHECK(ErrorOf("a,y\n1e400,1\n") ==
        "train.csv: line 2: column 1 (a): 1e400 is not in the range of float64");
  CHECK(ErrorOf("a,y\n1e39,1\n") ==
        "train.csv: line 2: column 1 (a): 1e+39 is not in the range of float32");
  CHECK(ErrorOf("a,y\n1,2\n\n3,4\n") == "train.csv: line 3: it is empty, and others follow");
  CHECK(ErrorOf("a;y\n1;2\n").find("opened") == std::string::npos);
  Write("a,b,y\n1,2,0\n");
  Write("b,a,y\n1,2,0\n", "test.csv");
  CHECK(ErrorOf() ==
        "x of test.csv is made of b, a, of train.csv of a, b: all files must have the same columns "
        "in the same order");
  fs::remove(folder_ / "d/train.csv");
  CHECK(ErrorOf() == "there is no training file (train.csv)");
}

TEST_CASE_METHOD(CsvFixture, "CSV: what it was converted to is kept, and made again when damaged") {
  Write("a,y\n1,2\n3,1\n");
  REQUIRE(Open().ok());
  const auto converted = [&] {
    std::string path;
    for (const auto& entry : fs::directory_iterator(folder_ / "state")) {
      if (entry.path().extension() == ".rows") path = entry.path();
    }
    return path;
  };
  const std::string path = converted();
  REQUIRE_FALSE(path.empty());
  const std::string good = ReadWhole(path);
  std::string other = good;
  other[0] = static_cast<char>(other[0] ^ 1);
  WriteWhole(path, other);
  CHECK(Row<float>(0, 0) == std::vector<float>{1});
  CHECK(ReadWhole(path) == good);
  WriteWhole(path, good.substr(0, 20));
  CHECK(Row<float>(0, 1) == std::vector<float>{3});
  // Whoever has no folder for it leaves nothing behind.
  fs::remove(path);
  kept_ = false;
  CHECK(Row<float>(0, 1) == std::vector<float>{3});
  CHECK(converted().empty());
}

TEST_CASE_METHOD(CsvFixture, "CSV: a state folder keeps the texts that were used last") {
  const std::string state = folder_ / "state";
  const size_t most = KeptFiles().files;
  const auto old = testing::WriteOld(state, "csv-", ".rows", most + 3);
  Write("a,y\n1,2\n3,1\n");
  auto dataset = Open();
  REQUIRE(dataset.ok());
  const std::set<std::string> rows = testing::NamesIn(state, ".rows");
  REQUIRE(rows.size() == most);
  for (size_t i = 0; i < most + 3; ++i) CHECK(fs::exists(old[i]) == (i >= 4));
  // One that a job has open stays, however long ago it was read.
  std::string own;
  for (const std::string& name : rows) {
    if (!name.starts_with("csv-old")) own = state + "/" + name;
  }
  testing::SetUsed(own, testing::kLongAgo - std::chrono::seconds(1));
  Write("a,y\n5,2\n");
  REQUIRE(Open().ok());
  CHECK(fs::exists(own));
  CHECK_FALSE(fs::exists(old[4]));
  std::vector<float> row(1);
  CHECK((*dataset)->Read(0, Split::kTrain, 1, std::as_writable_bytes(std::span(row))).ok());
  CHECK(row == std::vector<float>{3});
  // Opening it again is using it; once it is closed, it is one of them.
  dataset = absl::UnknownError("closed");
  testing::SetUsed(own, testing::kLongAgo);
  Write("a,y\n1,2\n3,1\n");
  struct stat before = {}, after = {};
  REQUIRE(stat(own.c_str(), &before) == 0);
  REQUIRE(Open().ok());
  REQUIRE(stat(own.c_str(), &after) == 0);
  CHECK(after.st_atim.tv_sec > before.st_atim.tv_sec);
  CHECK(after.st_mtim.tv_sec == before.st_mtim.tv_sec);
  CHECK(after.st_mtim.tv_nsec == before.st_mtim.tv_nsec);
  testing::SetUsed(own, testing::kLongAgo - std::chrono::seconds(1));
  Write("a,y\n6,2\n");
  REQUIRE(Open().ok());
  CHECK_FALSE(fs::exists(own));
}

TEST_CASE_METHOD(CsvFixture, "CSV: long files are read in pieces") {
  std::string text = "a,b,y\n";
  constexpr int kRows = 100'000;
  for (int i = 0; i < kRows; ++i) text += fmt::format("{}.5,{},{}\n", i, -i, i % 7);
  Write(text);
  CHECK(Columns() == "x input float32 (2); y target int32 below 7");
  for (const int row : {0, 12'345, kRows - 1}) {
    CHECK(Row<float>(0, row) ==
          std::vector<float>{static_cast<float>(row) + 0.5F, static_cast<float>(-row)});
    CHECK(Row<int32_t>(1, row) == std::vector<int32_t>{row % 7});
  }
}

TEST_CASE_METHOD(CsvFixture, "CSV: sample data hold the numbers of npy's") {
  REQUIRE(MakeSampleData(folder_ / "d", {.format = "csv", .train = 30, .test = 10}).ok());
  REQUIRE(MakeSampleData(folder_ / "n", {.format = "npy", .train = 30, .test = 10}).ok());
  CHECK(Columns() == "x input float32 (12); y target int32 below 3; y_price target float32");
  v1::DataSource npy;
  npy.set_path("n");
  const auto arrays = Dataset::Open({folder_.path(), ""}, npy);
  REQUIRE(arrays.ok());
  std::vector<float> x(8), z(4);
  for (const uint64_t sample : {0, 7}) {
    REQUIRE((*arrays)->Read(0, Split::kTest, sample, std::as_writable_bytes(std::span(x))).ok());
    REQUIRE((*arrays)->Read(1, Split::kTest, sample, std::as_writable_bytes(std::span(z))).ok());
    std::vector<float> both = x;
    both.insert(both.end(), z.begin(), z.end());
    CHECK(Row<float>(0, sample, Split::kTest) == both);
  }
}

}  // namespace
}  // namespace ringmaster::data
