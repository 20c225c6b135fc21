#include "cli/show/dataset_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "cli/show/terminal.h"
#include "common/image/decode.h"
#include "common/text.h"

namespace ringmaster::cli {
namespace {

template <typename Value>
Json OrNull(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

Json ColumnJson(const data::ColumnStatistics& column) {
  Json json = Json::object();
  if (!column.channels.empty()) {
    Json means = Json::array(), deviations = Json::array();
    for (const data::ChannelStatistics& channel : column.channels) {
      means.push_back(channel.mean);
      deviations.push_back(channel.deviation);
    }
    json["mean"] = means;
    json["standard_deviation"] = deviations;
  }
  if (!column.class_samples.empty()) json["class_samples"] = column.class_samples;
  return json;
}

uint64_t BytesOf(const v1::DatasetFacts& facts) {
  uint64_t bytes = facts.index().bytes();
  for (const v1::DataFile& file : facts.files()) bytes += file.bytes();
  return bytes;
}

// `118.200 ± 53.100` of each channel.
std::string Channels(const data::ColumnStatistics& column) {
  std::string text;
  for (const data::ChannelStatistics& channel : column.channels) {
    text +=
        fmt::format("{}{:.3f} ± {:.3f}", text.empty() ? "" : "  ", channel.mean, channel.deviation);
  }
  return text;
}

Json IndexJson(const v1::RecordIndexFacts& index) {
  return {{"sha256", index.sha256()},
          {"files", index.files()},
          {"bytes", index.bytes()},
          {"classes", index.classes()},
          {"quarantined", index.quarantined()},
          {"least_size", {index.least_height(), index.least_width()}},
          {"most_size", {index.most_height(), index.most_width()}}};
}

std::string RenderIndex(const v1::RecordIndexFacts& index) {
  const std::string out =
      index.quarantined() == 0
          ? ""
          : fmt::format("left out:  {} of {}\n", index.quarantined(), data::kQuarantineFile);
  return fmt::format(
      "index:     {} of {} files, {} classes\nimages:    {} to {} high, {} to {} wide\n{}",
      index.sha256(), index.files(), index.classes(), index.least_height(), index.most_height(),
      index.least_width(), index.most_width(), out);
}

std::string TypeName(const v1::StoredColumn& column) {
  switch (column.type()) {
    case v1::ELEMENT_TYPE_UINT8:
      return "uint8";
    case v1::ELEMENT_TYPE_INT32:
      return "int32";
    default:
      return "float32";
  }
}

std::string ShapeText(const v1::StoredColumn& column) {
  if (column.shape_size() == 3 && column.shape(0) == 0) {
    return fmt::format("any x any x {}", column.shape(2));
  }
  return fmt::format("{}", fmt::join(column.shape(), " x "));
}

const char* UseName(const v1::StoredColumn& column) {
  return column.use() == v1::COLUMN_USE_INPUT ? "input" : "target";
}

// How many samples have each class, of the columns where that is known.
std::string Classes(const DatasetStatistics& dataset, const Terminal& terminal) {
  std::string text;
  for (size_t i = 0; i < dataset.train.columns.size(); ++i) {
    const auto& train = dataset.train.columns[i].class_samples;
    const auto& test = dataset.test.columns[i].class_samples;
    if (train.empty() || test.size() != train.size()) continue;
    Table classes(
        {"CLASS OF " + dataset.facts.columns(static_cast<int>(i)).name(), "TRAIN", "TEST"});
    for (size_t label = 0; label < train.size(); ++label) {
      classes.Add(
          {{fmt::to_string(label)}, {fmt::to_string(train[label])}, {fmt::to_string(test[label])}});
    }
    text += '\n' + classes.Print(terminal);
  }
  return text;
}

// ---- samples ------------------------------------------------------------------------------------

constexpr size_t kShownNumbers = 16;

// An image of a record as it lies in its file, another one by its size and mean.
StatusOr<DatasetHead::Cell> ImageCell(const data::Dataset& dataset, size_t column,
                                      data::Split split, uint64_t sample) {
  if (!dataset.records()) {
    const v1::StoredColumn& stored = dataset.facts().columns(static_cast<int>(column));
    std::vector<std::byte> row(data::RowBytes(stored));
    RING_RETURN_IF_ERROR(dataset.Read(column, split, sample, row));
    uint64_t sum = 0;
    for (const std::byte value : row) sum += std::to_integer<uint64_t>(value);
    const double mean = static_cast<double>(sum) / static_cast<double>(row.size());
    return DatasetHead::Cell{fmt::format("{}, mean {:.1f}", ShapeText(stored), mean),
                             {{"height", stored.shape(0)},
                              {"width", stored.shape(1)},
                              {"channels", stored.shape(2)},
                              {"mean", mean}}};
  }
  const data::RecordReader& records = *dataset.records();
  const data::Record& record = records.index().at(split, sample);
  const std::string& file = records.index().files()[record.file].name;
  std::vector<uint8_t> bytes;
  RING_RETURN_IF_ERROR(records.Read(split, sample, &bytes));
  RING_ASSIGN_OR_RETURN(const image::Header header, image::ReadHeader(bytes));
  const char* const codec = header.codec == image::Codec::kJpeg ? "JPEG" : "PNG";
  return DatasetHead::Cell{fmt::format("{} x {} x {} {} of {} bytes, {} at byte {}",
                                       record.size.height, record.size.width, record.channels,
                                       codec, record.bytes, OneLine(file), record.offset),
                           {{"height", record.size.height},
                            {"width", record.size.width},
                            {"channels", record.channels},
                            {"codec", codec},
                            {"bytes", record.bytes},
                            {"file", CleanText(file, kMaxReasonText)},
                            {"offset", record.offset}}};
}

template <typename T>
StatusOr<DatasetHead::Cell> NumbersCell(const data::Dataset& dataset, size_t column,
                                        data::Split split, uint64_t sample) {
  const v1::StoredColumn& stored = dataset.facts().columns(static_cast<int>(column));
  std::vector<T> row(data::ElementsOf(stored));
  RING_RETURN_IF_ERROR(dataset.Read(column, split, sample, std::as_writable_bytes(std::span(row))));
  const size_t shown = std::min(row.size(), kShownNumbers);
  DatasetHead::Cell cell;
  cell.text =
      fmt::format("{}", fmt::join(row.begin(), row.begin() + static_cast<ptrdiff_t>(shown), " "));
  if (shown < row.size()) cell.text += fmt::format(" ... ({})", row.size());
  if (!stored.shape().empty()) {
    cell.json = row;
    return cell;
  }
  cell.json = row[0];
  if (!dataset.records() || stored.name() != "label") return cell;
  const std::vector<std::string>& classes = dataset.records()->index().classes();
  const auto label = static_cast<size_t>(row[0]);
  if (label >= classes.size()) return cell;
  cell.text += fmt::format(" ({})", OneLine(classes[label]));
  cell.json = {{"class", CleanText(classes[label], kMaxReasonText)}, {"label", row[0]}};
  return cell;
}

}  // namespace

StatusOr<DatasetHead> HeadOf(const std::string& path, const data::Dataset& dataset,
                             data::Split split, uint64_t samples) {
  DatasetHead head{path, dataset.facts(), split, {}};
  const auto columns = static_cast<size_t>(dataset.facts().columns_size());
  for (uint64_t sample = 0; sample < std::min(samples, dataset.samples(split)); ++sample) {
    auto& cells = head.samples.emplace_back();
    for (size_t i = 0; i < columns; ++i) {
      const v1::ElementType type = dataset.facts().columns(static_cast<int>(i)).type();
      const auto look = type == v1::ELEMENT_TYPE_UINT8   ? ImageCell
                        : type == v1::ELEMENT_TYPE_INT32 ? NumbersCell<int32_t>
                                                         : NumbersCell<float>;
      RING_ASSIGN_OR_RETURN(cells.emplace_back(), look(dataset, i, split, sample));
    }
  }
  return head;
}

Json ToJson(const DatasetHead& head) {
  Json samples = Json::array();
  for (const auto& cells : head.samples) {
    Json sample = Json::object();
    for (size_t i = 0; i < cells.size(); ++i) {
      sample[head.facts.columns(static_cast<int>(i)).name()] = cells[i].json;
    }
    samples.push_back(sample);
  }
  return {{"path", head.path},
          {"format", head.facts.format()},
          {"split", data::NameOf(head.split)},
          {"samples", samples}};
}

std::string RenderHead(const DatasetHead& head, const Terminal& terminal) {
  std::vector<std::string> names = {"SAMPLE"};
  for (const v1::StoredColumn& column : head.facts.columns()) {
    names.push_back(column.name());
    for (char& c : names.back()) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  }
  Table table(names);
  for (size_t i = 0; i < head.samples.size(); ++i) {
    std::vector<Cell> row = {{fmt::to_string(i)}};
    for (const DatasetHead::Cell& cell : head.samples[i]) row.push_back({cell.text});
    table.Add(row);
  }
  const bool trains = head.split == data::Split::kTrain;
  return fmt::format("{}: {}, {} of {} {} samples\n\n", head.path, head.facts.format(),
                     head.samples.size(),
                     trains ? head.facts.train_samples() : head.facts.test_samples(),
                     trains ? "training" : "test") +
         table.Print(terminal);
}

Json ToJson(const DatasetStatistics& dataset) {
  const v1::DatasetFacts& facts = dataset.facts;
  Json files = Json::array();
  for (const v1::DataFile& file : facts.files()) {
    files.push_back({{"name", file.name()},
                     {"bytes", file.bytes()},
                     {"samples", file.samples()},
                     {"sha256", file.sha256()}});
  }
  Json columns = Json::array();
  for (size_t i = 0; i < dataset.train.columns.size(); ++i) {
    const v1::StoredColumn& column = facts.columns(static_cast<int>(i));
    Json json = {{"name", column.name()},
                 {"use", UseName(column)},
                 {"type", TypeName(column)},
                 {"shape", std::vector<int64_t>(column.shape().begin(), column.shape().end())}};
    if (column.type() == v1::ELEMENT_TYPE_INT32) json["limit"] = column.limit();
    json["train"] = ColumnJson(dataset.train.columns[i]);
    json["test"] = ColumnJson(dataset.test.columns[i]);
    columns.push_back(json);
  }
  Json json = {{"path", dataset.path},
               {"format", facts.format()},
               {"bytes", BytesOf(facts)},
               {"train", {{"samples", facts.train_samples()}}},
               {"test", {{"samples", facts.test_samples()}}},
               {"columns", columns},
               {"files", files}};
  if (facts.has_index()) json["index"] = IndexJson(facts.index());
  return json;
}

std::string RenderDataset(const DatasetStatistics& dataset, const Terminal& terminal) {
  const v1::DatasetFacts& facts = dataset.facts;
  std::string text = fmt::format(
      "dataset:   {}\nformat:    {}\nsamples:   {} train, {} test\nbytes:     {}\n", dataset.path,
      facts.format(), facts.train_samples(), facts.test_samples(), BytesOf(facts));
  if (facts.has_index()) text += RenderIndex(facts.index());
  Table columns({"COLUMN", "USE", "TYPE", "SHAPE", "LIMIT", "MEAN ± DEVIATION", "IN TEST"});
  for (size_t i = 0; i < dataset.train.columns.size(); ++i) {
    const v1::StoredColumn& column = facts.columns(static_cast<int>(i));
    const bool whole = column.type() == v1::ELEMENT_TYPE_INT32;
    columns.Add({{column.name()},
                 {UseName(column)},
                 {TypeName(column)},
                 {ShapeText(column)},
                 {whole ? fmt::to_string(column.limit()) : ""},
                 {Channels(dataset.train.columns[i])},
                 {Channels(dataset.test.columns[i])}});
  }
  text += '\n' + columns.Print(terminal) + Classes(dataset, terminal);
  if (facts.has_index()) return text;
  Table files({"FILE", "SAMPLES", "BYTES", "SHA-256"});
  for (const v1::DataFile& file : facts.files()) {
    files.Add({{file.name()},
               {fmt::to_string(file.samples())},
               {fmt::to_string(file.bytes())},
               {file.sha256()}});
  }
  return text + '\n' + files.Print(terminal);
}

Json ToJson(const std::string& path, const data::Verification& verification) {
  Json files = Json::array();
  for (const data::VerifiedFile& file : verification.files) {
    files.push_back({{"name", file.name},
                     {"bytes", OrNull(file.bytes)},
                     {"samples", OrNull(file.samples)},
                     {"sha256", OrNull(file.sha256)}});
  }
  return {{"path", path},
          {"format", verification.format},
          {"ok", verification.problems.empty()},
          {"files", files},
          {"problems", verification.problems}};
}

std::string RenderSha256(const data::Verification& verification) {
  std::string text;
  for (const data::VerifiedFile& file : verification.files) {
    if (file.sha256) text += fmt::format("{}  {}\n", *file.sha256, file.name);
  }
  return text;
}

}  // namespace ringmaster::cli
