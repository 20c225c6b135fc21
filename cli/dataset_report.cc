#include "cli/dataset_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "cli/terminal.h"

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
          {"least_size", {index.least_height(), index.least_width()}},
          {"most_size", {index.most_height(), index.most_width()}}};
}

std::string RenderIndex(const v1::RecordIndexFacts& index) {
  return fmt::format(
      "index:     {} of {} files, {} classes\nimages:    {} to {} high, {} to {} wide\n",
      index.sha256(), index.files(), index.classes(), index.least_height(), index.most_height(),
      index.least_width(), index.most_width());
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

}  // namespace

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
