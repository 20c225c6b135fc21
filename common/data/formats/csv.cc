// The format csv: a text of numbers, train.csv and perhaps test.csv, a sample a line. The first
// line names the columns, or data.csv.header: false says that it does not. What is no target and
// is not named in data.inputs is, all together and in the file's order, column x. Fields are
// numbers as std::from_chars reads them (a leading + is passed over), as double and then as float,
// as numpy does. Lines are converted once, to rows of floats: x, then of each other column the
// number as float32 and as int32, of which the second counts for a target that is whole everywhere.
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <set>
#include <string_view>

#include "common/data/beneath.h"
#include "common/data/columns.h"
#include "common/data/format.h"
#include "common/data/formats/npy.h"
#include "common/numeric/float_mode.h"
#include "common/text.h"

namespace ringmaster::data {
namespace {

constexpr size_t kCsvAtOnce = size_t{1} << 20, kMostLineBytes = size_t{16} << 20;
constexpr size_t kMostFields = 100'000;
constexpr char kTogether[] = "x";

// The lines of a file, of which one at a time is in memory.
class Lines {
 public:
  Lines(int descriptor, uint64_t bytes) : descriptor_(descriptor), bytes_(bytes) {}

  // Without its end; nothing behind the last one. Valid until the next call.
  StatusOr<std::optional<std::string_view>> Next() {
    size_t searched = 0;
    while (true) {
      const size_t end = buffer_.find('\n', at_ + searched);
      if (end != std::string::npos) return Take(end, end + 1);
      if (offset_ == bytes_) {
        if (at_ == buffer_.size()) return std::optional<std::string_view>();
        return Take(buffer_.size(), buffer_.size());
      }
      searched = buffer_.size() - at_;
      if (searched > kMostLineBytes) {
        return FailedPrecondition("line {}: it has more than {} bytes: is it a text of lines?",
                                  number_ + 1, kMostLineBytes);
      }
      RING_RETURN_IF_ERROR(Fill());
    }
  }
  [[nodiscard]] uint64_t number() const { return number_; }  // of the last one, from 1 on

 private:
  std::optional<std::string_view> Take(size_t end, size_t next) {
    std::string_view line = std::string_view(buffer_).substr(at_, end - at_);
    if (line.ends_with('\r')) line.remove_suffix(1);
    at_ = next;
    ++number_;
    return line;
  }
  Status Fill() {
    buffer_.erase(0, at_);
    at_ = 0;
    const size_t before = buffer_.size();
    buffer_.resize(before + std::min<uint64_t>(kCsvAtOnce, bytes_ - offset_));
    const std::span<char> room = std::span(buffer_).subspan(before);
    RING_RETURN_IF_ERROR(
        ReadExactly(descriptor_, offset_, {reinterpret_cast<uint8_t*>(room.data()), room.size()}));
    offset_ += room.size();
    return absl::OkStatus();
  }

  const int descriptor_;
  const uint64_t bytes_;
  uint64_t offset_ = 0, number_ = 0;
  std::string buffer_;
  size_t at_ = 0;
};

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// The fields of a line; one that begins with " ends with the next one that is not doubled, and
// keeps its quotes.
void SplitFields(std::string_view line, char delimiter, std::vector<std::string_view>* fields) {
  fields->clear();
  size_t begin = 0;
  while (fields->size() <= kMostFields) {
    size_t from = begin;
    if (from < line.size() && line[from] == '"') {
      do {
        from = line.find('"', from + 1);
        from = from == std::string_view::npos ? line.size() : from + 1;
      } while (from < line.size() && line[from] == '"');
    }
    const size_t end = std::min(line.find(delimiter, from), line.size());
    fields->push_back(line.substr(begin, end - begin));
    if (end == line.size()) return;
    begin = end + 1;
  }
}

std::string_view Unquoted(std::string_view field) {
  const bool quoted = field.size() >= 2 && field.front() == '"' && field.back() == '"';
  return quoted ? field.substr(1, field.size() - 2) : field;
}

// `Sepal Length (cm)` is column sepal_length_cm.
std::string ColumnOf(std::string_view field, size_t place) {
  std::string name;
  for (char c : Trim(Unquoted(Trim(field)))) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
    const bool word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (word) {
      name += c;
    } else if (!name.empty() && name.back() != '_') {
      name += '_';
    }
  }
  if (name.ends_with('_')) name.pop_back();
  if (name.empty()) return fmt::format("c{}", place);
  if (name[0] >= '0' && name[0] <= '9') name.insert(0, 1, 'c');
  return name.substr(0, 64);
}

bool IsIn(const google::protobuf::RepeatedPtrField<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// What of a line is wanted.
struct Plan {
  char delimiter = ',';
  std::vector<std::string> names;
  std::vector<size_t> together, alone;  // places of fields
  [[nodiscard]] size_t row_bytes() const { return 4 * (together.size() + 2 * alone.size()); }
};

StatusOr<Plan> PlanOf(const Content& content, std::string_view first) {
  const v1::DataSource& source = *content.source;
  Plan plan;
  RING_ASSIGN_OR_RETURN(plan.delimiter, CsvDelimiter(source));
  const bool header = !source.csv().has_header() || source.csv().header();
  if (first.starts_with("\xEF\xBB\xBF")) first.remove_prefix(3);
  std::vector<std::string_view> fields;
  SplitFields(first, plan.delimiter, &fields);
  if (fields.size() > kMostFields) {
    return FailedPrecondition("line 1: it has more than {} fields", kMostFields);
  }
  std::set<std::string> seen;
  const bool by_name =
      source.targets().empty() && (source.inputs().empty() || IsIn(source.inputs(), kTogether));
  for (size_t i = 0; i < fields.size(); ++i) {
    const std::string name = header ? ColumnOf(fields[i], i) : fmt::format("c{}", i);
    if (!seen.insert(name).second) {
      return FailedPrecondition("line 1: two columns are called {}", name);
    }
    plan.names.push_back(name);
    const bool input = IsIn(source.inputs(), name) && name != kTogether;
    const bool rest = source.targets().empty() && !by_name;
    const bool target = IsIn(source.targets(), name) || rest || (by_name && IsTargetName(name));
    if (input || target) {
      plan.alone.push_back(i);
    } else if (content.Wants(kTogether)) {
      plan.together.push_back(i);
    }
  }
  return plan;
}

std::string_view Shown(std::string_view field) { return field.substr(0, 40); }

StatusOr<double> NumberOf(std::string_view field) {
  const std::string_view text = Trim(Unquoted(Trim(field)));
  if (text.empty()) return FailedPrecondition("the field is empty: a number is expected");
  const char* begin = text.data() + (text.front() == '+' ? 1 : 0);
  const char* const end = text.data() + text.size();
  double value = 0;
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error == std::errc::result_out_of_range) {
    return FailedPrecondition("{} is not in the range of float64",
                              OneLine(std::string(Shown(text))));
  }
  if (error != std::errc() || stop != end || !std::isfinite(value)) {
    return FailedPrecondition(
        "\"{}\" is no number: text is not read, nor nan and inf; is the delimiter another one "
        "(data.csv.delimiter), or has the file no header (data.csv.header)?",
        OneLine(std::string(Shown(text))));
  }
  return value;
}

// Written without a point and an exponent, and a class or a place in a table.
bool IsWhole(std::string_view field, double value) {
  const std::string_view text = Trim(Unquoted(Trim(field)));
  return text.find_first_not_of("+0123456789") == std::string_view::npos &&
         value <= static_cast<double>(kLargestWhole);
}

// Of a column that is alone.
struct CsvWhole {
  bool all = true;
  int64_t largest = 0;
};

class Rows {
 public:
  Rows(const Plan& plan, const Append& append)
      : plan_(plan), append_(append), wholes_(plan.alone.size()) {}

  Status Add(std::string_view line) {
    SplitFields(line, plan_.delimiter, &fields_);
    if (fields_.size() != plan_.names.size()) {
      return FailedPrecondition("it has {} fields, the first line has {}", fields_.size(),
                                plan_.names.size());
    }
    for (const size_t place : plan_.together) {
      RING_ASSIGN_OR_RETURN(const double value, At(place));
      RING_RETURN_IF_ERROR(PutFloat(place, value));
    }
    for (size_t i = 0; i < plan_.alone.size(); ++i) {
      const size_t place = plan_.alone[i];
      RING_ASSIGN_OR_RETURN(const double value, At(place));
      RING_RETURN_IF_ERROR(PutFloat(place, value));
      const bool whole = wholes_[i].all && IsWhole(fields_[place], value);
      wholes_[i].all = whole;
      const auto number = whole ? static_cast<int64_t>(value) : 0;
      wholes_[i].largest = std::max(wholes_[i].largest, number);
      PutWord(static_cast<uint32_t>(number));
    }
    ++rows_;
    return bytes_.size() < kCsvAtOnce ? absl::OkStatus() : Flush();
  }
  Status Flush() {
    RING_RETURN_IF_ERROR(append_(bytes_));
    bytes_.clear();
    return absl::OkStatus();
  }
  [[nodiscard]] const std::vector<CsvWhole>& wholes() const { return wholes_; }
  [[nodiscard]] uint64_t rows() const { return rows_; }

 private:
  std::string PlaceOf(size_t place) const {
    return fmt::format("column {} ({})", place + 1, plan_.names[place]);
  }
  StatusOr<double> At(size_t place) const {
    auto value = NumberOf(fields_[place]);
    if (!value.ok()) return Annotate(value.status(), PlaceOf(place));
    return value;
  }
  Status PutFloat(size_t place, double value) {
    const auto narrow = static_cast<float>(value);
    if (!std::isfinite(narrow)) {
      return FailedPrecondition("{}: {} is not in the range of float32", PlaceOf(place), value);
    }
    PutWord(std::bit_cast<uint32_t>(narrow));
    return absl::OkStatus();
  }
  void PutWord(uint32_t word) {
    for (int i = 0; i < 4; ++i) bytes_.push_back(static_cast<uint8_t>(word >> (8 * i)));
  }

  const Plan& plan_;
  const Append& append_;
  std::vector<CsvWhole> wholes_;
  std::vector<std::string_view> fields_;
  std::vector<uint8_t> bytes_;
  uint64_t rows_ = 0;
};

FileLayout LayoutOf(const Plan& plan, const Rows& rows, const v1::DataSource& source) {
  FileLayout layout = {.bytes = rows.rows() * plan.row_bytes(), .others = plan.names};
  const Array row = {
      .samples = rows.rows(), .stride = plan.row_bytes(), .number = Number::kFloat32, .shape = {}};
  if (!plan.together.empty()) {
    Array& array = layout.arrays.emplace_back(row);
    array.column = kTogether;
    array.shape = {static_cast<int64_t>(plan.together.size())};
    for (const size_t place : plan.together) array.parts.push_back(plan.names[place]);
  }
  for (size_t i = 0; i < plan.alone.size(); ++i) {
    Array& array = layout.arrays.emplace_back(row);
    array.column = plan.names[plan.alone[i]];
    array.begin = 4 * (plan.together.size() + 2 * i);
    const CsvWhole& whole = rows.wholes()[i];
    if (IsIn(source.inputs(), array.column) || !whole.all) continue;
    array.begin += 4;
    array.number = Number::kInt32;
    array.limit = whole.largest + 1;
  }
  return layout;
}

StatusOr<FileLayout> ConvertLines(const Content& content, const Append& append, Lines* lines) {
  const DefaultFloatMode mode;  // rounding, and subnormals
  RING_ASSIGN_OR_RETURN(const auto first, lines->Next());
  if (!first) return FailedPrecondition("it is empty");
  RING_ASSIGN_OR_RETURN(const Plan plan, PlanOf(content, *first));
  Rows rows(plan, append);
  const auto add = [&](std::string_view line) {
    return Annotate(rows.Add(line), fmt::format("line {}", lines->number()));
  };
  if (content.source->csv().has_header() && !content.source->csv().header()) {
    RING_RETURN_IF_ERROR(add(first->substr(first->starts_with("\xEF\xBB\xBF") ? 3 : 0)));
  }
  uint64_t empty = 0;  // the line of one, which only the end may have
  while (true) {
    RING_ASSIGN_OR_RETURN(const auto line, lines->Next());
    if (!line) break;
    if (line->empty() || (plan.delimiter != '\t' && Trim(*line).empty())) {
      if (empty == 0) empty = lines->number();
      continue;
    }
    if (empty != 0) return FailedPrecondition("line {}: it is empty, and others follow", empty);
    RING_RETURN_IF_ERROR(add(*line));
  }
  if (rows.rows() == 0) return FailedPrecondition("there is no line of numbers in it");
  RING_RETURN_IF_ERROR(rows.Flush());
  return LayoutOf(plan, rows, *content.source);
}

StatusOr<FileLayout> ConvertCsv(const FileKind& /*kind*/, const Content& content,
                                const Append& append) {
  Lines lines(content.descriptor, content.bytes);
  auto layout = ConvertLines(content, append, &lines);
  if (!layout.ok()) return Annotate(layout.status(), content.name);
  return layout;
}

// ---- sample data: the columns of npy's, each number with a column of its own -------------------

std::string DrawCsv(uint64_t seed, Split split, uint64_t samples) {
  std::vector<std::string> names;
  for (const SampleColumn& column : SampleColumns()) {
    for (uint64_t i = 0; i < std::max<uint64_t>(column.elements, 1); ++i) {
      names.push_back(column.elements == 0 ? column.name : fmt::format("{}{}", column.name, i));
    }
  }
  std::string text = fmt::format("{}\n", fmt::join(names, ","));
  for (uint64_t sample = 0; sample < samples; ++sample) {
    const char* between = "";
    for (const SampleColumn& column : SampleColumns()) {
      std::vector<uint8_t> record(4 * std::max<size_t>(column.elements, 1));
      column.draw(seed, split, sample, record);
      for (size_t at = 0; at < record.size(); at += 4) {
        float value = 0;
        int32_t whole = 0;
        std::memcpy(&value, record.data() + at, 4);
        std::memcpy(&whole, record.data() + at, 4);
        text += between;
        text += IsFloat(column.number) ? fmt::format("{}", value) : fmt::to_string(whole);
        between = ",";
      }
    }
    text += '\n';
  }
  return text;
}

std::vector<SampleFile> CsvSampleFiles(uint64_t train, uint64_t test, uint64_t /*seed*/) {
  const auto file = [](Split split, uint64_t samples) {
    return SampleFile{.name = fmt::format("{}.csv", NameOf(split)),
                      .split = split,
                      .begin = 0,
                      .end = samples,
                      .whole = [=](uint64_t seed) { return DrawCsv(seed, split, samples); }};
  };
  return {file(Split::kTrain, train), file(Split::kTest, test)};
}

}  // namespace

StatusOr<char> CsvDelimiter(const v1::DataSource& source) {
  const std::string& said = source.csv().delimiter();
  if (said.empty()) return ',';
  if (said == "tab" || said == "\t") return '\t';
  const char c = said[0];
  const bool of_numbers = (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.' || c == '"';
  if (said.size() == 1 && c >= ' ' && c <= '~' && !of_numbers) return c;
  return InvalidArgument(
      "data.csv.delimiter: \"{}\" cannot stand between numbers; it is one character, such as ; or "
      "|, or the word tab",
      OneLine(said, 20));
}

const Format& Csv() {
  static const Format format = {
      .name = "csv",
      .classes = 0,
      .may_be_gzipped = false,
      .files = {{Split::kTrain, Holds::kColumns, "train.csv", "training file", 0, false},
                {Split::kTest, Holds::kColumns, "test.csv", "test file", 0, false}},
      .layout = nullptr,
      .sample_files = CsvSampleFiles,
      .convert = ConvertCsv};
  return format;
}

}  // namespace ringmaster::data
