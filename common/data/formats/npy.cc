#include "common/data/formats/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "common/check.h"
#include "common/data/beneath.h"
#include "common/data/drawing.h"
#include "common/numeric/float_mode.h"
#include "common/text.h"

namespace ringmaster::data {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicBytes = 6, kMaxAxes = 8;
constexpr uint64_t kMaxRowBytes = uint64_t{1} << 30;

// The literal {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, its keys in any order.
class Literal {
 public:
  explicit Literal(std::string text) : text_(std::move(text)) {}

  Status Read(NpyHeader* header) {
    if (!Take('{')) return Odd("`{`");
    bool descr = false, order = false, shape = false;
    while (!Take('}')) {
      RING_ASSIGN_OR_RETURN(const std::string key, Quoted());
      if (!Take(':')) return Odd("`:`");
      if (key == "descr" && !descr) {
        descr = true;
        RING_RETURN_IF_ERROR(ReadType(header));
      } else if (key == "fortran_order" && !order) {
        order = true;
        RING_RETURN_IF_ERROR(ReadOrder());
      } else if (key == "shape" && !shape) {
        shape = true;
        RING_RETURN_IF_ERROR(ReadShape(header));
      } else {
        return FailedPrecondition("its header has a key \"{}\" too many", OneLine(key, 64));
      }
      if (Take(',')) continue;
      if (!Take('}')) return Odd("`,` or `}`");
      break;
    }
    if (!descr || !order || !shape) {
      return FailedPrecondition("its header lacks descr, fortran_order or shape");
    }
    Skip();
    if (at_ != text_.size()) return Odd("its end");
    const auto wide = std::ranges::count_if(header->shape, [](int64_t e) { return e > 1; });
    if (fortran_ && wide > 1) {
      return FailedPrecondition(
          "it lies column by column (fortran_order): save np.ascontiguousarray(...) of it");
    }
    return absl::OkStatus();
  }

 private:
  void Skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool Take(char c) {
    Skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool TakeWord(const std::string& word) {
    Skip();
    if (text_.compare(at_, word.size(), word) != 0) return false;
    at_ += word.size();
    return true;
  }
  Status Odd(const std::string& expected) const {
    return FailedPrecondition("its header is no numpy header: expected {} at \"{}\"", expected,
                              OneLine(text_.substr(std::min(at_, text_.size()), 40), 64));
  }
  StatusOr<std::string> Quoted() {
    Skip();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') return Odd("a quoted word");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string::npos) return Odd("a quoted word");
    std::string word = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return word;
  }

  Status ReadType(NpyHeader* header) {
    Skip();
    if (at_ < text_.size() && text_[at_] == '[') {
      return FailedPrecondition(
          "it is a structured array, which is not read: save each field as an array of its own");
    }
    RING_ASSIGN_OR_RETURN(const std::string type, Quoted());
    static constexpr struct {
      const char* name;
      Number number;
    } kTypes[] = {{"b1", Number::kBool},    {"u1", Number::kUint8},   {"i1", Number::kInt8},
                  {"u2", Number::kUint16},  {"i2", Number::kInt16},   {"u4", Number::kUint32},
                  {"i4", Number::kInt32},   {"u8", Number::kUint64},  {"i8", Number::kInt64},
                  {"f2", Number::kFloat16}, {"f4", Number::kFloat32}, {"f8", Number::kFloat64}};
    const char order = type.empty() ? '\0' : type[0];
    for (const auto& [name, number] : kTypes) {
      if (type.size() != 3 || type.substr(1) != name) continue;
      if (order != '<' && order != '>' && order != '|' && order != '=') break;
      if (order == '|' && BytesOf(number) > 1) break;
      header->number = number;
      header->big_endian = order == '>';
      return absl::OkStatus();
    }
    const char kind = type.size() > 1 ? type[1] : '\0';
    const char* what = "a type that is not read";
    if (kind == 'O') what = "Python objects (pickle), which are never read";
    if (kind == 'U' || kind == 'S') what = "text, which is not read";
    if (kind == 'M' || kind == 'm') what = "dates or times, which are not read";
    if (kind == 'c') what = "complex numbers, which are not read";
    return FailedPrecondition(
        "it holds {} (descr {}): save numbers, as with .astype(np.float32) or .astype(np.int32)",
        what, OneLine(type, 40));
  }

  Status ReadOrder() {
    fortran_ = TakeWord("True");
    if (fortran_ || TakeWord("False")) return absl::OkStatus();
    return Odd("True or False");
  }

  Status ReadShape(NpyHeader* header) {
    if (!Take('(')) return Odd("`(`");
    while (!Take(')')) {
      Skip();
      uint64_t extent = 0;
      const size_t begin = at_;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
        if (extent > uint64_t{1} << 58) return Odd("an extent below 2^58");
        extent = extent * 10 + static_cast<uint64_t>(text_[at_] - '0');
      }
      if (at_ == begin) return Odd("a whole number");
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2's
      header->shape.push_back(static_cast<int64_t>(extent));
      if (header->shape.size() > kMaxAxes) {
        return FailedPrecondition("it has more than {} axes", kMaxAxes);
      }
      if (Take(',')) continue;
      if (!Take(')')) return Odd("`,` or `)`");
      break;
    }
    return absl::OkStatus();
  }

  const std::string text_;
  size_t at_ = 0;
  bool fortran_ = false;
};

// Shape and type as sizes, none of which overflows.
Status Measure(NpyHeader* header) {
  if (header->shape.empty()) {
    return FailedPrecondition("it is one number (shape ()): the first axis counts samples");
  }
  uint64_t row = BytesOf(header->number);
  for (size_t axis = 0; axis < header->shape.size(); ++axis) {
    if (header->shape[axis] < 1) {
      return FailedPrecondition("its axis {} is empty (shape {}): every axis needs at least 1",
                                axis, ShapeText(header->shape));
    }
    if (axis == 0) continue;
    if (__builtin_mul_overflow(row, static_cast<uint64_t>(header->shape[axis]), &row) ||
        row > kMaxRowBytes) {
      return FailedPrecondition("a sample of it has more than {} bytes (shape {})", kMaxRowBytes,
                                ShapeText(header->shape));
    }
  }
  if (__builtin_mul_overflow(row, static_cast<uint64_t>(header->shape[0]), &header->data_bytes)) {
    return FailedPrecondition("its shape {} has more than 2^64 bytes", ShapeText(header->shape));
  }
  return absl::OkStatus();
}

// Little- or big-endian bytes as a number of so many bytes.
template <typename Word>
Word WordAt(const uint8_t* bytes, bool big_endian) {
  Word word = 0;
  for (size_t i = 0; i < sizeof(Word); ++i) {
    const size_t place = big_endian ? i : sizeof(Word) - 1 - i;
    word = static_cast<Word>((uint64_t{word} << 8) | bytes[place]);
  }
  return word;
}

// Exact; in whole numbers, so that no float mode matters.
float HalfToFloat(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000U} << 16;
  uint32_t exponent = (half >> 10) & 0x1FU, mantissa = half & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | mantissa << 13);
  if (exponent == 0) {
    if (mantissa == 0) return std::bit_cast<float>(sign);
    exponent = 1;
    for (; (mantissa & 0x400U) == 0; mantissa <<= 1) --exponent;  // wraps below 0, and back
    mantissa &= 0x3FFU;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

float FloatAt(Number number, const uint8_t* at, bool big) {
  switch (number) {
    case Number::kFloat16:
      return HalfToFloat(WordAt<uint16_t>(at, big));
    case Number::kFloat32:
      return std::bit_cast<float>(WordAt<uint32_t>(at, big));
    default:
      return static_cast<float>(std::bit_cast<double>(WordAt<uint64_t>(at, big)));
  }
}

struct Whole {
  bool negative = false;
  uint64_t magnitude = 0;  // of one that is not negative
};

Whole WholeAt(Number number, const uint8_t* at, bool big) {
  const auto of = [](int64_t value) { return Whole{value < 0, static_cast<uint64_t>(value)}; };
  switch (number) {
    case Number::kBool:
      return {false, *at == 0 ? 0U : 1U};
    case Number::kUint8:
      return {false, *at};
    case Number::kInt8:
      return of(static_cast<int8_t>(*at));
    case Number::kUint16:
      return {false, WordAt<uint16_t>(at, big)};
    case Number::kInt16:
      return of(static_cast<int16_t>(WordAt<uint16_t>(at, big)));
    case Number::kUint32:
      return {false, WordAt<uint32_t>(at, big)};
    case Number::kInt32:
      return of(static_cast<int32_t>(WordAt<uint32_t>(at, big)));
    case Number::kUint64:
      return {false, WordAt<uint64_t>(at, big)};
    default:
      return of(static_cast<int64_t>(WordAt<uint64_t>(at, big)));
  }
}

}  // namespace

StatusOr<uint64_t> NpyHeaderBytes(std::span<const uint8_t> preamble) {
  if (preamble.size() < kNpyPreamble || std::memcmp(preamble.data(), kMagic, kMagicBytes) != 0) {
    return FailedPrecondition(
        "it is no .npy file: it does not begin with \\x93NUMPY; save it with np.save");
  }
  const uint8_t major = preamble[6];
  if (major < 1 || major > 3 || preamble[7] != 0) {
    return FailedPrecondition("it is a .npy file of version {}.{}; 1.0, 2.0 and 3.0 are read",
                              major, preamble[7]);
  }
  const uint64_t length = major == 1 ? WordAt<uint16_t>(preamble.data() + 8, false)
                                     : WordAt<uint32_t>(preamble.data() + 8, false);
  if (length > kMaxNpyHeader) {
    return FailedPrecondition("its header has {} bytes; at most {} are expected", length,
                              kMaxNpyHeader);
  }
  return (major == 1 ? 10 : 12) + length;
}

StatusOr<NpyHeader> ParseNpyHeader(std::span<const uint8_t> header) {
  const size_t begin = header[6] == 1 ? 10 : 12;
  NpyHeader parsed;
  parsed.bytes = header.size();
  RING_RETURN_IF_ERROR(
      Literal({header.begin() + static_cast<ptrdiff_t>(begin), header.end()}).Read(&parsed));
  RING_RETURN_IF_ERROR(Measure(&parsed));
  return parsed;
}

StatusOr<Array> FindNpyArray(const std::string& name, uint64_t begin, uint64_t bytes,
                             const ReadBytes& read) {
  if (bytes < kNpyPreamble) {
    return FailedPrecondition("{} has {} bytes: a .npy file has a header of more", name, bytes);
  }
  std::vector<uint8_t> head(kNpyPreamble);
  RING_RETURN_IF_ERROR(Annotate(read(begin, head), name));
  const StatusOr<uint64_t> length = NpyHeaderBytes(head);
  if (!length.ok()) return Annotate(length.status(), name);
  if (*length > bytes) {
    return FailedPrecondition("{} has {} bytes, its header alone {}: it is truncated", name, bytes,
                              *length);
  }
  head.resize(*length);
  RING_RETURN_IF_ERROR(Annotate(read(begin, head), name));
  const StatusOr<NpyHeader> header = ParseNpyHeader(head);
  if (!header.ok()) return Annotate(header.status(), name);
  const uint64_t there = bytes - *length;
  if (header->data_bytes != there) {
    return FailedPrecondition(
        "{} has {} bytes of numbers, for its shape {} of {} {} are expected: {}", name, there,
        ShapeText(header->shape), NameOf(header->number), header->data_bytes,
        there < header->data_bytes
            ? "it is truncated"
            : fmt::format("{} bytes follow its end", there - header->data_bytes));
  }
  Array array = {.column = {},
                 .samples = static_cast<uint64_t>(header->shape[0]),
                 .begin = begin + *length,
                 .number = header->number,
                 .big_endian = header->big_endian,
                 .shape = {header->shape.begin() + 1, header->shape.end()}};
  array.stride = array.row_bytes();
  return array;
}

StatusOr<std::string> ColumnNamed(const std::string& name) {
  constexpr size_t kLongest = 64;
  std::string column = name;
  for (char& c : column) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  const bool word =
      column.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
  if (word && !column.empty() && column.size() <= kLongest && column[0] >= 'a') return column;
  return FailedPrecondition(
      "\"{}\" is no name of a column: expected a letter first, then also 0 to 9 and _, at most {}",
      OneLine(name, 80), kLongest);
}

std::vector<uint8_t> WriteNpyHeader(Number number, std::span<const uint64_t> shape) {
  constexpr size_t kAlignment = 64;
  std::string extents;
  for (const uint64_t extent : shape) extents += fmt::format("{}, ", extent);
  if (shape.size() > 1) extents.resize(extents.size() - 2);
  const char kind = IsFloat(number) ? 'f' : number == Number::kUint8 ? 'u' : 'i';
  std::string text = fmt::format("{{'descr': '<{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                 kind, BytesOf(number), extents);
  text.append(kAlignment - 1 - (10 + text.size()) % kAlignment, ' ');
  text += '\n';
  std::string bytes(kMagic, kMagicBytes);
  bytes += {'\1', '\0', static_cast<char>(text.size() & 0xFF), static_cast<char>(text.size() >> 8)};
  bytes += text;
  return {bytes.begin(), bytes.end()};
}

void ToFloat32(const Array& array, std::span<const uint8_t> row, std::span<float> out) {
  const DefaultFloatMode mode;  // rounding, and subnormals of a float64
  const size_t bytes = BytesOf(array.number);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = FloatAt(array.number, row.data() + i * bytes, array.big_endian);
  }
}

void ToInt32(const Array& array, std::span<const uint8_t> row, std::span<int32_t> out) {
  const size_t bytes = BytesOf(array.number);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<int32_t>(
        WholeAt(array.number, row.data() + i * bytes, array.big_endian).magnitude);
  }
}

void FindRange(const Array& array, std::span<const uint8_t> rows, Range* range) {
  const size_t bytes = BytesOf(array.number), count = rows.size() / bytes;
  for (size_t i = 0; i < count; ++i) {
    const Whole whole = WholeAt(array.number, rows.data() + i * bytes, array.big_endian);
    if (whole.negative || whole.magnitude > uint64_t{kLargestWhole}) {
      range->first_bad = i;
      range->bad = whole.negative ? fmt::to_string(static_cast<int64_t>(whole.magnitude))
                                  : fmt::to_string(whole.magnitude);
      return;
    }
    range->largest = std::max(range->largest, static_cast<int64_t>(whole.magnitude));
  }
}

// ---- the format: a folder with train/NAME.npy and test/NAME.npy
// ----------------------------------

namespace {

StatusOr<FileLayout> NpyLayout(const FileKind& kind, const Content& content) {
  const size_t slash = content.name.find('/');
  const std::string stem = content.name.substr(slash + 1, content.name.size() - slash - 5);
  const StatusOr<std::string> column = ColumnNamed(stem);
  if (!column.ok()) return Annotate(column.status(), content.name);
  if (!content.Wants(*column)) return FileLayout{.bytes = content.bytes, .others = {*column}};
  RING_ASSIGN_OR_RETURN(
      Array array,
      FindNpyArray(content.name, 0, content.bytes, [&](uint64_t offset, std::span<uint8_t> bytes) {
        return ReadExactly(content.descriptor, offset, bytes);
      }));
  array.column = *column;
  array.split = *kind.split;
  return FileLayout{.bytes = content.bytes, .arrays = {std::move(array)}};
}

constexpr size_t kXs = 8, kZs = 4, kSampleClasses = 3;

// What both inputs and both targets of a sample are made of.
struct SampleRow {
  std::array<float, kXs> x;
  std::array<float, kZs> z;
  int32_t y;
  float price;
};

SampleRow DrawRow(uint64_t seed, Split split, uint64_t sample) {
  const PhiloxStream stream(seed, PhiloxStream::Purpose::kSampleData, static_cast<uint64_t>(split),
                            sample, "columns");
  Dice dice(stream);
  SampleRow row = {};
  for (float& value : row.x) value = static_cast<float>(dice.Between(-1, 1));
  for (float& value : row.z) value = static_cast<float>(dice.Between(-1, 1));
  const auto x = [&](size_t i) { return double{row.x[i]}; };
  const auto z = [&](size_t i) { return double{row.z[i]}; };
  const std::array<double, kSampleClasses> scores = {x(0) + x(1) - z(0), x(2) - x(3) + z(1),
                                                     z(2) - x(0) * x(2) + x(4)};
  row.y = static_cast<int32_t>(std::ranges::max_element(scores) - scores.begin());
  row.price = static_cast<float>(2 * x(5) * z(3) + x(6) - x(7) * x(7) + 0.5 * z(0) +
                                 dice.Between(-0.05, 0.05));
  return row;
}

template <auto member>
void DrawColumn(uint64_t seed, Split split, uint64_t sample, std::span<uint8_t> record) {
  static_assert(std::endian::native == std::endian::little);
  const SampleRow row = DrawRow(seed, split, sample);
  const auto& values = row.*member;
  RING_CHECK(record.size() == sizeof(values), "a record of sample data");
  std::memcpy(record.data(), &values, sizeof(values));
}

std::vector<SampleFile> NpySampleFiles(uint64_t train, uint64_t test, uint64_t /*seed*/) {
  std::vector<SampleFile> files;
  for (const Split split : {Split::kTrain, Split::kTest}) {
    const uint64_t samples = split == Split::kTrain ? train : test;
    for (const SampleColumn& column : SampleColumns()) {
      std::vector<uint64_t> shape = {samples};
      if (column.elements > 0) shape.push_back(column.elements);
      files.push_back({fmt::format("{}/{}.npy", NameOf(split), column.name), split, 0, samples,
                       WriteNpyHeader(column.number, shape),
                       std::max<size_t>(column.elements, 1) * BytesOf(column.number), column.draw});
    }
  }
  return files;
}

}  // namespace

std::span<const SampleColumn> SampleColumns() {
  static constexpr SampleColumn kColumns[] = {
      {"x", Number::kFloat32, kXs, DrawColumn<&SampleRow::x>},
      {"z", Number::kFloat32, kZs, DrawColumn<&SampleRow::z>},
      {"y", Number::kInt32, 0, DrawColumn<&SampleRow::y>},
      {"y_price", Number::kFloat32, 0, DrawColumn<&SampleRow::price>}};
  return kColumns;
}

const Format& Npy() {
  static const Format format = {
      .name = "npy",
      .classes = 0,
      .may_be_gzipped = false,
      .files = {{Split::kTrain, Holds::kColumns, "train/*.npy", "training file"},
                {Split::kTest, Holds::kColumns, "test/*.npy", "test file", 0, false}},
      .layout = NpyLayout,
      .sample_files = NpySampleFiles};
  return format;
}

}  // namespace ringmaster::data
