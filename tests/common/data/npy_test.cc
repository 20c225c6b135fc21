// The formats npy and npz: what is read, of which types, and what is refused and how.
#include "common/data/formats/npy.h"

#include <zlib.h>

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "common/data/dataset.h"
#include "common/data/formats/gzip.h"
#include "common/data/formats/npz.h"
#include "common/data/sample_data.h"
#include "common/data/statistics.h"
#include "common/data/verify.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::data {
namespace {

namespace fs = std::filesystem;

// A .npy file with this header and these bytes behind it.
std::string NpyOf(std::string header, const std::string& data, char major = 1) {
  header += '\n';
  std::string file = std::string("\x93NUMPY") + major + '\0';
  for (size_t i = 0; i < (major == 1 ? 2U : 4U); ++i) {
    file += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  }
  return file + header + data;
}
std::string Npy(const std::string& descr, const std::string& shape, const std::string& data) {
  return NpyOf("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }",
               data);
}

template <typename T>
std::string BytesOf(std::initializer_list<T> values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.begin(), bytes.size());
  return bytes;
}
std::string Reversed(std::string bytes, size_t size) {
  for (size_t i = 0; i < bytes.size(); i += size) {
    std::reverse(bytes.begin() + static_cast<ptrdiff_t>(i),
                 bytes.begin() + static_cast<ptrdiff_t>(i + size));
  }
  return bytes;
}

std::string Little(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i, value >>= 8) text += static_cast<char>(value & 0xFF);
  return text;
}

std::string Deflated(const std::string& text) {
  z_stream stream = {};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(text.size() + 100, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

struct Member {
  std::string name, content;
  bool deflated = false;
  uint64_t flags = 0, method = 0;  // another method than `deflated` says
  bool wide = false;               // sizes in a zip64 field, also of the directory
};

std::string Zip(const std::vector<Member>& members) {
  std::string file, central;
  for (const Member& member : members) {
    const std::string stored = member.deflated ? Deflated(member.content) : member.content;
    const uint32_t crc =
        Crc32(0, {reinterpret_cast<const uint8_t*>(member.content.data()), member.content.size()});
    const uint64_t method = member.method != 0 ? member.method : member.deflated ? 8 : 0;
    const std::string extra = member.wide ? Little(1, 2) + Little(24, 2) +
                                                Little(member.content.size(), 8) +
                                                Little(stored.size(), 8) + Little(file.size(), 8)
                                          : "";
    const uint64_t all = 0xFFFFFFFF;
    central += Little(0x02014b50, 4) + Little(45, 2) + Little(45, 2) + Little(member.flags, 2) +
               Little(method, 2) + Little(0, 4) + Little(crc, 4) +
               Little(member.wide ? all : stored.size(), 4) +
               Little(member.wide ? all : member.content.size(), 4) +
               Little(member.name.size(), 2) + Little(extra.size(), 2) + Little(0, 10) +
               Little(member.wide ? all : file.size(), 4) + member.name + extra;
    // numpy writes a field of its own into the local header alone.
    const std::string local = Little(1, 2) + Little(16, 2) + std::string(16, '\0');
    file += Little(0x04034b50, 4) + std::string(22, '\0') + Little(member.name.size(), 2) +
            Little(local.size(), 2) + member.name + local + stored;
  }
  std::string end64;
  if (!members.empty() && members[0].wide) {
    end64 = Little(0x06064b50, 4) + Little(44, 8) + Little(0, 12) + Little(members.size(), 8) +
            Little(members.size(), 8) + Little(central.size(), 8) + Little(file.size(), 8) +
            Little(0x07064b50, 4) + Little(0, 4) + Little(file.size() + central.size(), 8) +
            Little(1, 4);
  }
  const bool wide = !end64.empty();
  return file + central + end64 + Little(0x06054b50, 4) + Little(0, 4) +
         Little(wide ? 0xFFFF : members.size(), 2) + Little(wide ? 0xFFFF : members.size(), 2) +
         Little(wide ? 0xFFFFFFFF : central.size(), 4) +
         Little(wide ? 0xFFFFFFFF : file.size(), 4) + Little(0, 2);
}

const std::string kX = Npy("<f4", "3, 2", BytesOf<float>({1, 2, 3, 4, 5, 6}));
const std::string kY = Npy("<i8", "3,", BytesOf<int64_t>({2, 0, 1}));

class ColumnsFixture {
 public:
  ColumnsFixture() {
    fs::create_directories(root_ / "d/train");
    fs::create_directories(root_ / "d/test");
  }
  std::string File(const std::string& name) const { return root_ / "d/" + name; }
  void Write(const std::string& name, const std::string& bytes) const {
    WriteWhole(File(name), bytes);
  }
  // One column as npy in both splits, beside x and y.
  void WriteBoth(const std::string& name, const std::string& bytes) const {
    Write("train/" + name, bytes);
    Write("test/" + name, bytes);
  }
  StatusOr<std::shared_ptr<const Dataset>> Open() const {
    v1::DataSource source = source_;
    source.set_path("d");
    return Dataset::Open({root_.path(), ""}, source);
  }
  std::string ErrorOf() const {
    const auto opened = Open();
    if (opened.ok()) return "opened";
    const std::string message = Message(opened.status());
    return message.substr(message.find(": ") + 2);
  }
  // The error when column x is this in both splits.
  std::string ErrorWith(const std::string& bytes) const {
    WriteBoth("x.npy", bytes);
    return ErrorOf();
  }
  // name:type(shape)<limit, targets with a star.
  std::string Columns() const {
    const auto dataset = Open();
    if (!dataset.ok()) return Message(dataset.status());
    std::string text;
    for (const v1::StoredColumn& column : (*dataset)->facts().columns()) {
      text += text.empty() ? "" : " ";
      text += column.name() + (column.use() == v1::COLUMN_USE_TARGET ? "*" : "") + ":";
      text += v1::ElementType_Name(column.type()).substr(13) + "(";
      for (const int64_t extent : column.shape()) text += fmt::format("{},", extent);
      text += ")";
      if (column.limit() > 0) text += fmt::format("<{}", column.limit());
    }
    return text;
  }
  template <typename T>
  std::vector<T> Row(size_t column, Split split, uint64_t sample) const {
    const auto dataset = Open();
    REQUIRE(dataset.ok());
    std::vector<T> row(RowBytes((*dataset)->facts().columns(static_cast<int>(column))) / sizeof(T));
    REQUIRE((*dataset)->Read(column, split, sample, std::as_writable_bytes(std::span(row))).ok());
    return row;
  }

 protected:
  TemporaryFolder root_;
  v1::DataSource source_;
};

using Floats = std::vector<float>;
using Wholes = std::vector<int32_t>;

TEST_CASE_METHOD(ColumnsFixture, "npy: a folder a split, a file a column") {
  WriteBoth("x.npy", kX);
  WriteBoth("y.npy", kY);
  Write("test/x.npy", Npy("<f4", "1, 2", BytesOf<float>({8, 9})));
  Write("test/y.npy", Npy("<i8", "1,", BytesOf<int64_t>({4})));
  Write("train/notes.txt", "not looked at");
  CHECK(Columns() == "x:FLOAT32(2,) y*:INT32()<5");
  const auto dataset = Open();
  REQUIRE(dataset.ok());
  CHECK((*dataset)->facts().format() == "npy");
  CHECK((*dataset)->facts().train_samples() == 3);
  CHECK((*dataset)->facts().test_samples() == 1);
  REQUIRE((*dataset)->facts().files_size() == 4);
  CHECK((*dataset)->facts().files(0).name() == "test/x.npy");
  CHECK((*dataset)->facts().files(2).samples() == 3);
  CHECK(Row<float>(0, Split::kTrain, 1) == Floats{3, 4});
  CHECK(Row<float>(0, Split::kTest, 0) == Floats{8, 9});
  CHECK(Row<int32_t>(1, Split::kTrain, 0) == Wholes{2});
}

TEST_CASE_METHOD(ColumnsFixture, "npy: every type of number becomes float32 or int32") {
  WriteBoth("y.npy", Npy("<f4", "2,", BytesOf<float>({0, 1})));
  const struct {
    std::string descr, data;
    bool whole;
    double first, second;
  } cases[] = {
      {"|b1", std::string("\0\1", 2), true, 0, 1},
      {"|u1", "\x07\xFF", true, 7, 255},
      {"|i1", "\x07\x7F", true, 7, 127},
      {"<u2", BytesOf<uint16_t>({7, 65535}), true, 7, 65535},
      {"<i2", BytesOf<int16_t>({7, 32767}), true, 7, 32767},
      {"<u4", BytesOf<uint32_t>({7, 2147483646}), true, 7, 2147483646},
      {"<i4", BytesOf<int32_t>({7, 2147483646}), true, 7, 2147483646},
      {"<u8", BytesOf<uint64_t>({7, 70000}), true, 7, 70000},
      {"<i8", BytesOf<int64_t>({7, 70000}), true, 7, 70000},
      {"<f2", BytesOf<uint16_t>({0xC100, 0x0001}), false, -2.5, 0x1p-24},
      {"<f2", BytesOf<uint16_t>({0x7BFF, 0x83FF}), false, 65504, -0x3FFp-24},
      {"<f4", BytesOf<float>({-2.5F, 0x1p-149F}), false, -2.5, 0x1p-149},
      {"<f8", BytesOf<double>({1.0 + 0x1p-24, 0x1.8p-149}), false, 1, 0x1p-148},
      {"=f4", BytesOf<float>({1, 2}), false, 1, 2},
  };
  for (const auto& one : cases) {
    const bool big = one.descr[0] == '<';
    for (const bool reversed : {false, true}) {
      if (reversed && !big) continue;
      INFO(one.descr << (reversed ? " reversed" : ""));
      const std::string descr = reversed ? ">" + one.descr.substr(1) : one.descr;
      const size_t size = one.data.size() / 2;
      WriteBoth("x.npy", Npy(descr, "2,", reversed ? Reversed(one.data, size) : one.data));
      if (one.whole) {
        CHECK(Columns() == fmt::format("x:INT32()<{} y*:FLOAT32()", int64_t(one.second) + 1));
        CHECK(Row<int32_t>(0, Split::kTrain, 0) == Wholes{static_cast<int32_t>(one.first)});
        CHECK(Row<int32_t>(0, Split::kTest, 1) == Wholes{static_cast<int32_t>(one.second)});
      } else {
        CHECK(Columns() == "x:FLOAT32() y*:FLOAT32()");
        CHECK(Row<float>(0, Split::kTrain, 0) == Floats{static_cast<float>(one.first)});
        CHECK(Row<float>(0, Split::kTest, 1) == Floats{static_cast<float>(one.second)});
      }
    }
  }
  WriteBoth("x.npy", Npy("<f2", "2,", BytesOf<uint16_t>({0xFC00, 0x7E00})));
  CHECK(Row<float>(0, Split::kTrain, 0) == Floats{-std::numeric_limits<float>::infinity()});
  CHECK(std::isnan(Row<float>(0, Split::kTrain, 1)[0]));
}

TEST_CASE_METHOD(ColumnsFixture, "npy: uint8 inputs of rank 3 and 4 are images, targets never") {
  const std::string grey(2 * 2 * 3, '\5'), colour(2 * 2 * 3 * 3, '\6');
  WriteBoth("y.npy", Npy("<i4", "2, 1", BytesOf<int32_t>({3, 1})));
  WriteBoth("x.npy", Npy("|u1", "2, 2, 3", grey));
  CHECK(Columns() == "x:UINT8(2,3,1,) y*:INT32()<4");
  WriteBoth("x.npy", Npy("|u1", "2, 2, 3, 1", grey));
  CHECK(Columns() == "x:UINT8(2,3,1,) y*:INT32()<4");
  CHECK(Row<uint8_t>(0, Split::kTrain, 1) == std::vector<uint8_t>(6, 5));
  WriteBoth("x.npy", Npy("|u1", "2, 2, 3, 3", colour));
  CHECK(Columns() == "x:UINT8(2,3,3,) y*:INT32()<4");
  WriteBoth("x.npy", Npy("|u1", "2, 2, 9", colour.substr(0, 36)));
  CHECK(Columns() == "x:UINT8(2,9,1,) y*:INT32()<4");
  WriteBoth("x.npy", Npy("|u1", "2, 6", grey));
  CHECK(Columns() == "x:INT32(6,)<6 y*:INT32()<4");
  WriteBoth("x.npy", Npy("|i1", "2, 2, 3", grey));
  CHECK(Columns() == "x:INT32(2,3,)<6 y*:INT32()<4");
  WriteBoth("y_mask.npy", Npy("|u1", "2, 2, 3", grey));
  CHECK(Columns() == "x:INT32(2,3,)<6 y*:INT32()<4 y_mask*:INT32(2,3,)<6");
}

TEST_CASE_METHOD(ColumnsFixture, "Columns: data.inputs and data.targets choose and order them") {
  for (const std::string name : {"x", "z", "label", "targets", "y2", "year", "Big"}) {
    WriteBoth(name + ".npy", Npy("<f4", "1,", BytesOf<float>({1})));
  }
  const auto columns = [&](std::vector<std::string> inputs, std::vector<std::string> targets) {
    *source_.mutable_inputs() = {inputs.begin(), inputs.end()};
    *source_.mutable_targets() = {targets.begin(), targets.end()};
    const auto dataset = Open();
    if (!dataset.ok()) return ErrorOf();
    std::string text;
    for (const v1::StoredColumn& column : (*dataset)->facts().columns()) {
      text += column.name() + (column.use() == v1::COLUMN_USE_TARGET ? "* " : " ");
    }
    return text;
  };
  CHECK(columns({}, {}) == "big x year z label* targets* y2* ");
  CHECK(columns({"z", "x"}, {"y2"}) == "z x y2* ");
  CHECK(columns({"z", "x"}, {}) == "z x big* label* targets* y2* year* ");
  CHECK(columns({}, {"x"}) == "big label targets y2 year z x* ");
  CHECK(columns({"w"}, {}) ==
        "data.inputs: the data have no column \"w\"; they have big, label, "
        "targets, x, y2, year, z");
  CHECK(columns({"x"}, {"x"}) ==
        "data.targets: column x is named twice in data.inputs and data.targets");
  CHECK(
      columns({"x"}, {"cost"}) ==
      "data.targets: the data have no column \"cost\"; they have x, big, label, targets, y2, year, "
      "z");
  // What is not named is not looked at.
  Write("train/z.npy", "no array");
  CHECK(columns({"x"}, {"y2"}) == "x y2* ");
  fs::remove(File("test/z.npy"));
  CHECK(columns({"x"}, {"y2"}) == "x y2* ");
}

TEST_CASE_METHOD(ColumnsFixture, "Columns: what does not agree is named") {
  WriteBoth("x.npy", kX);
  WriteBoth("y.npy", kY);
  Write("test/y.npy", Npy("<i8", "2,", BytesOf<int64_t>({2, 0})));
  CHECK(ErrorOf() ==
        "test/x.npy has 3 samples of x, test/y.npy has 2 of y (test): as many expected");
  Write("test/y.npy", Npy("<f4", "3,", BytesOf<float>({2, 0, 1})));
  CHECK(ErrorOf() ==
        "test/y.npy has y in float32, train/y.npy in int64: all must be whole numbers, or none");
  Write("test/y.npy", Npy("<i8", "3, 1", BytesOf<int64_t>({2, 0, 1})));
  CHECK(ErrorOf() == "test/y.npy has y of 1, train/y.npy of a number: all must be of one shape");
  fs::remove(File("test/y.npy"));
  CHECK(ErrorOf() ==
        "train/y.npy has column y, the test data have none: add it, or name the columns that are "
        "used in data.inputs and data.targets");
  fs::remove(File("train/y.npy"));
  CHECK(Columns() == "x:FLOAT32(2,)");
  WriteBoth("y.npy", Npy("<i2", "3,", BytesOf<int16_t>({5, 0, -3})));
  CHECK(ErrorOf() ==
        "test/y.npy: test sample 2 of y: -3 is not in 0 to 2147483646: whole numbers are classes "
        "or places in a table; save others as float32");
  WriteBoth("y.npy", Npy("<u4", "3, 2", BytesOf<uint32_t>({5, 0, 3, 2147483647, 1, 1})));
  CHECK_THAT(ErrorOf(), Catch::StartsWith("test/y.npy: test sample 1 of y: 2147483647 is not in"));
  const auto verified = Verify(root_ / "d", {}, {});
  REQUIRE(verified.ok());
  REQUIRE(verified->problems.size() == 1);
  CHECK_THAT(verified->problems[0], Catch::StartsWith("test/y.npy: test sample 1 of y"));
}

TEST_CASE_METHOD(ColumnsFixture, "npy: what is refused says what it is, and what to save instead") {
  WriteBoth("y.npy", Npy("<i8", "2,", BytesOf<int64_t>({0, 1})));
  const std::string numbers(16, '\0');
  const auto with = [&](const std::string& descr) {
    return ErrorWith(
        NpyOf("{'descr': " + descr + ", 'fortran_order': False, 'shape': (2,)}", numbers));
  };
  const std::string save = "): save numbers, as with .astype(np.float32) or .astype(np.int32)";
  CHECK(with("'|O'") ==
        "test/x.npy: it holds Python objects (pickle), which are never read (descr |O" + save);
  CHECK(with("'<U3'") == "test/x.npy: it holds text, which is not read (descr <U3" + save);
  CHECK(with("'<M8[ns]'") ==
        "test/x.npy: it holds dates or times, which are not read (descr <M8[ns]" + save);
  CHECK(with("'<c8'") ==
        "test/x.npy: it holds complex numbers, which are not read (descr <c8" + save);
  CHECK(with("'<f16'") == "test/x.npy: it holds a type that is not read (descr <f16" + save);
  CHECK(with("[('a', '<f4')]") ==
        "test/x.npy: it is a structured array, which is not read: save each field as an array of "
        "its own");
  CHECK(ErrorWith(NpyOf("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2)}", numbers)) ==
        "test/x.npy: it lies column by column (fortran_order): save np.ascontiguousarray(...) of "
        "it");
  CHECK(ErrorWith(NpyOf("{'descr': '<f8', 'fortran_order': True, 'shape': (2, 1)}", numbers)) ==
        "opened");
  CHECK(ErrorWith(Npy("<f4", "", "1234")) ==
        "test/x.npy: it is one number (shape ()): the first axis counts samples");
  CHECK(ErrorWith(Npy("<f4", "2, 0", "")) ==
        "test/x.npy: its axis 1 is empty (shape 2 x 0): every axis needs at least 1");
  CHECK(ErrorWith(Npy("<f4", "2, 3", numbers)) ==
        "test/x.npy has 16 bytes of numbers, for its shape 2 x 3 of float32 24 are expected: it is "
        "truncated");
  CHECK(ErrorWith(Npy("<f4", "2,", numbers)) ==
        "test/x.npy has 16 bytes of numbers, for its shape 2 of float32 8 are expected: 8 bytes "
        "follow its end");
  CHECK_THAT(ErrorWith(Npy("<f4", "288230376151711744, 64", numbers)),
             Catch::Contains("has more than 2^64 bytes"));
  CHECK_THAT(ErrorWith(Npy("<f4", "2, 288230376151711744, 288230376151711744", numbers)),
             Catch::Contains("a sample of it has more than 1073741824 bytes"));
  CHECK_THAT(ErrorWith(Npy("<f4", "1,1,1,1,1,1,1,1,1", numbers)),
             Catch::Contains("more than 8 axes"));
  CHECK(ErrorWith("not numpy at all") ==
        "test/x.npy: it is no .npy file: it does not begin with \\x93NUMPY; save it with np.save");
  CHECK(ErrorWith("") == "test/x.npy has 0 bytes: a .npy file has a header of more");
  CHECK(ErrorWith(NpyOf("{}", "", '\4')) ==
        "test/x.npy: it is a .npy file of version 4.0; 1.0, 2.0 and 3.0 are read");
  CHECK(ErrorWith(std::string("\x93NUMPY\1\0\xFF\xFF{'descr'", 18)) ==
        "test/x.npy has 18 bytes, its header alone 65545: it is truncated");
  for (const std::string odd :
       {"{'descr': '<f4'}", "{'descr': '<f4', 'descr': '<f4'}", "{descr: '<f4'}", "['<f4']",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} + 1"}) {
    CHECK_THAT(ErrorWith(NpyOf(odd, numbers)), Catch::StartsWith("test/x.npy: its header "));
  }
  fs::remove(File("test/x.npy"));
  fs::remove(File("train/x.npy"));
  Write("train/my x.npy", kX);
  CHECK(ErrorOf() ==
        "train/my x.npy: \"my x\" is no name of a column: expected a letter first, then also 0 to "
        "9 and _, at most 64");
}

TEST_CASE_METHOD(ColumnsFixture, "npy: versions 2 and 3, Python 2's numbers, any order and room") {
  WriteBoth("y.npy", NpyOf("{'shape': (3L,),'fortran_order':False,\"descr\":'<i8'}      ",
                           BytesOf<int64_t>({0, 1, 7}), '\2'));
  WriteBoth("x.npy", NpyOf("{'shape': (3, 2), 'fortran_order': False, 'descr': '<f4'}",
                           kX.substr(kX.size() - 24), '\3'));
  CHECK(Columns() == "x:FLOAT32(2,) y*:INT32()<8");
  CHECK(Row<float>(0, Split::kTest, 2) == Floats{5, 6});
}

TEST_CASE_METHOD(ColumnsFixture, "npz: an archive a split, stored, deflated, and with zip64") {
  const bool deflated = GENERATE(false, true), wide = GENERATE(false, true);
  Write("train.npz", Zip({{.name = "x.npy", .content = kX, .deflated = deflated, .wide = wide},
                          {.name = "readme", .content = "not looked at"},
                          {.name = "Y.npy", .content = kY, .deflated = deflated}}));
  Write("test.npz", Zip({{.name = "x.npy", .content = kX, .deflated = !deflated},
                         {.name = "y.npy", .content = kY, .wide = false}}));
  CHECK(Columns() == "x:FLOAT32(2,) y*:INT32()<3");
  CHECK(Row<float>(0, Split::kTrain, 2) == Floats{5, 6});
  CHECK(Row<int32_t>(1, Split::kTest, 0) == Wholes{2});
  const auto dataset = Open();
  REQUIRE(dataset.ok());
  CHECK((*dataset)->facts().format() == "npz");
  CHECK((*dataset)->facts().files(1).samples() == 3);
}

TEST_CASE_METHOD(ColumnsFixture, "npz: one archive with both splits, as Keras has them") {
  const std::vector<Member> keras = {{.name = "x_test.npy", .content = kX},
                                     {.name = "x_train.npy", .content = kX},
                                     {.name = "train_labels.npy", .content = kY},
                                     {.name = "test_labels.npy", .content = kY},
                                     {.name = "val_labels.npy", .content = "not looked at"}};
  Write("mnist.npz", Zip(keras));
  CHECK(Columns() == "x:FLOAT32(2,) labels*:INT32()<3");
  Write("other.npz", Zip(keras));
  CHECK(ErrorOf() ==
        "mnist.npz and other.npz are both there: data lie in train.npz and test.npz, or in one "
        "file *.npz; remove what does not count");
  fs::remove(File("other.npz"));
  Write("train.npz", Zip({{.name = "x.npy", .content = kX}}));
  CHECK_THAT(ErrorOf(), Catch::StartsWith("mnist.npz and train.npz are both there"));
  fs::remove(File("mnist.npz"));
  CHECK(ErrorOf() == "opened");
  fs::rename(File("train.npz"), File("test.npz"));
  CHECK(ErrorOf() == "there is no training file (train.npz)");
  fs::remove(File("test.npz"));
  Write("some.npz", Zip({{.name = "x.npy", .content = kX}}));
  CHECK(ErrorOf() ==
        "some.npz has no array that is NAME_train or NAME_test, such as x_train and y_test");
}

TEST_CASE_METHOD(ColumnsFixture, "npy and npz: data without test samples") {
  const int way = GENERATE(0, 1, 2);
  if (way == 0) {
    Write("train/x.npy", kX);
    Write("train/y.npy", kY);
  } else if (way == 1) {
    Write("train.npz", Zip({{.name = "x.npy", .content = kX}, {.name = "y.npy", .content = kY}}));
  } else {
    Write("all.npz",
          Zip({{.name = "x_train.npy", .content = kX}, {.name = "y_train.npy", .content = kY}}));
  }
  CHECK(Columns() == "x:FLOAT32(2,) y*:INT32()<3");
  const auto dataset = Open();
  REQUIRE(dataset.ok());
  CHECK((*dataset)->samples(Split::kTrain) == 3);
  CHECK((*dataset)->samples(Split::kTest) == 0);
}

TEST_CASE_METHOD(ColumnsFixture, "npz: what is wrong with an archive names file and member") {
  const std::string whole =
      Zip({{.name = "x.npy", .content = kX}, {.name = "y.npy", .content = kY, .deflated = true}});
  Write("train.npz", whole);
  Write("test.npz", whole);
  REQUIRE(ErrorOf() == "opened");
  const auto with = [&](const std::string& bytes) {
    Write("test.npz", bytes);
    return ErrorOf();
  };
  const std::string no = "test.npz: it is no zip archive, or a damaged one: ";
  const std::string end = "; save it with np.savez";
  CHECK(with("") == no + "it has 0 bytes" + end);
  CHECK(with(whole.substr(0, whole.size() - 1)) ==
        no + "it has no end record, as a copy that was cut off" + end);
  std::string flipped = whole;
  flipped[flipped.find(kX) + kX.size() - 1] ^= 1;
  CHECK(with(flipped) ==
        "test.npz: x.npy: its CRC-32 is another one: it is damaged; copy it again");
  flipped = whole;
  const size_t central = whole.find("PK\1\2");
  const size_t second = whole.find("PK\1\2", central + 4);
  flipped[second + 16] ^= 1;
  CHECK(with(flipped) ==
        "test.npz: y.npy: its CRC-32 is another one: it is damaged; copy it again");
  flipped = whole;
  flipped[second + 24] ^= 1;
  CHECK_THAT(with(flipped), Catch::Contains("test.npz: y.npy"));
  flipped = whole;
  flipped[second + 27] = '\xFF';
  CHECK_THAT(with(flipped), Catch::StartsWith("test.npz: y.npy: compressed members are kept in "
                                              "memory and may have 2147483648 bytes together"));
  flipped = whole;
  flipped[second + 42] = flipped[central + 42];
  flipped[second + 43] = flipped[central + 43];
  CHECK(with(flipped) == no + "members x.npy and y.npy overlap" + end);
  CHECK(with(Zip({{.name = "x.npy", .content = kX}, {.name = "x.npy", .content = kX}})) ==
        "test.npz: it has two members x.npy");
  CHECK(with(Zip({{.name = "x.npy", .content = kX, .flags = 1}})) ==
        "test.npz: member x.npy is encrypted");
  CHECK(with(Zip({{.name = "x.npy", .content = kX, .method = 14}})) ==
        "test.npz: member x.npy is compressed by method 14: write it with np.savez or "
        "np.savez_compressed");
  // A bomb: 64 MiB of zeros that the directory says to be as few as an array needs.
  std::string bomb = Zip(
      {{.name = "x.npy", .content = kX + std::string(size_t{64} << 20, '\0'), .deflated = true}});
  REQUIRE(bomb.size() < size_t{1} << 20);
  const size_t entry = bomb.rfind("PK\1\2") + 24;
  for (size_t i = 0; i < 4; ++i) bomb[entry + i] = static_cast<char>(kX.size() >> (8 * i));
  CHECK_THAT(with(bomb), Catch::StartsWith("test.npz: x.npy"));
  CHECK(with(Zip({})) == "test.npz has no array that is NAME.npy");
  CHECK(with(Zip({{.name = "X.npy", .content = kX}, {.name = "x.npy", .content = kX}})) ==
        "test.npz: two members are column x of test");
  CHECK_THAT(with(Zip({{.name = "x.npy", .content = "short", .deflated = true}})),
             Catch::StartsWith("test.npz: x.npy has 5 bytes"));
  // Whatever is flipped, there is an answer; where it opens, nothing that counts was.
  for (size_t i = 0; i < whole.size(); ++i) {
    flipped = whole;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x55);
    const std::string error = with(flipped);
    INFO(i << ": " << error);
    CHECK((error == "opened" || error.find("test.npz") != std::string::npos ||
           error.find("the test data have none") != std::string::npos));
  }
  for (size_t size = 0; size < whole.size(); ++size) {
    CHECK(with(whole.substr(0, size)).starts_with("test.npz"));
  }
}

TEST_CASE("Sample data: npy and npz hold the same columns, which statistics describe") {
  const TemporaryFolder root;
  const auto open = [&](const std::string& format) {
    REQUIRE(MakeSampleData(root / format, {.format = format, .train = 200, .test = 9}).ok());
    v1::DataSource source;
    source.set_path(format);
    auto dataset = Dataset::Open({root.path(), ""}, source);
    INFO(dataset.status());
    REQUIRE(dataset.ok());
    CHECK((*dataset)->facts().format() == format);
    return *std::move(dataset);
  };
  const auto npy = open("npy"), npz = open("npz");
  REQUIRE(npy->facts().columns_size() == 4);
  for (int i = 0; i < 4; ++i) {
    const v1::StoredColumn& column = npy->facts().columns(i);
    CHECK(column.ShortDebugString() == npz->facts().columns(i).ShortDebugString());
    std::vector<std::byte> a(RowBytes(column)), b(RowBytes(column));
    for (uint64_t sample = 0; sample < 200; ++sample) {
      REQUIRE(npy->Read(static_cast<size_t>(i), Split::kTrain, sample, a).ok());
      REQUIRE(npz->Read(static_cast<size_t>(i), Split::kTrain, sample, b).ok());
      REQUIRE(a == b);
    }
  }
  CHECK(npy->facts().columns(2).name() == "y");
  CHECK(npy->facts().columns(2).limit() == 3);
  const auto statistics = StatisticsOf(*npz, Split::kTrain);
  REQUIRE(statistics.ok());
  CHECK(std::abs(statistics->columns[0].channels[0].mean) < 0.1);
  CHECK(statistics->columns[0].channels[0].deviation == Approx(0.577).margin(0.05));
  for (const uint64_t samples : statistics->columns[2].class_samples) CHECK(samples > 40);
  CHECK(Message(MakeSampleData(root / "npy", {.format = "npy"})) ==
        root / "npy" +
            " already holds test/x.npy: nothing was written; choose another folder, or "
            "remove it");
}

}  // namespace
}  // namespace ringmaster::data
