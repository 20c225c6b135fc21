#include "cli/dataset_report.h"

#include <algorithm>
#include <vector>

#include "cli/terminal.h"

namespace ringmaster::cli {
namespace {

template <typename Value>
Json OrNull(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

Json SplitJson(const data::SplitStatistics& split, uint64_t samples) {
  Json means = Json::array(), deviations = Json::array();
  for (const data::ChannelStatistics& channel : split.channels) {
    means.push_back(channel.mean);
    deviations.push_back(channel.deviation);
  }
  return {{"samples", samples},
          {"class_samples", split.class_samples},
          {"mean", means},
          {"standard_deviation", deviations}};
}

uint64_t BytesOf(const v1::DatasetFacts& facts) {
  uint64_t bytes = 0;
  for (const v1::DataFile& file : facts.files()) bytes += file.bytes();
  return bytes;
}

// `mean 118.2, deviation 53.1` of each channel.
std::string Channels(const data::SplitStatistics& split) {
  std::string text;
  for (const data::ChannelStatistics& channel : split.channels) {
    text +=
        fmt::format("{}{:.3f} ± {:.3f}", text.empty() ? "" : "  ", channel.mean, channel.deviation);
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
  return {{"path", dataset.path},
          {"format", facts.format()},
          {"height", facts.height()},
          {"width", facts.width()},
          {"channels", facts.channels()},
          {"classes", facts.classes()},
          {"bytes", BytesOf(facts)},
          {"train", SplitJson(dataset.train, facts.train_samples())},
          {"test", SplitJson(dataset.test, facts.test_samples())},
          {"files", files}};
}

std::string RenderDataset(const DatasetStatistics& dataset, const Terminal& terminal) {
  const v1::DatasetFacts& facts = dataset.facts;
  std::string text = fmt::format(
      "dataset:   {}\nformat:    {}\nimages:    {} x {} x {} (height, width, channels)\n"
      "classes:   {}\nbytes:     {}\n",
      dataset.path, facts.format(), facts.height(), facts.width(), facts.channels(),
      facts.classes(), BytesOf(facts));
  Table splits({"SPLIT", "SAMPLES", "MEAN ± DEVIATION OF EACH CHANNEL"});
  splits.Add({{"train"}, {fmt::to_string(facts.train_samples())}, {Channels(dataset.train)}});
  splits.Add({{"test"}, {fmt::to_string(facts.test_samples())}, {Channels(dataset.test)}});
  Table classes({"CLASS", "TRAIN", "TEST"});
  for (uint32_t label = 0; label < facts.classes(); ++label) {
    classes.Add({{fmt::to_string(label)},
                 {fmt::to_string(dataset.train.class_samples[label])},
                 {fmt::to_string(dataset.test.class_samples[label])}});
  }
  Table files({"FILE", "SAMPLES", "BYTES", "SHA-256"});
  for (const v1::DataFile& file : facts.files()) {
    files.Add({{file.name()},
               {fmt::to_string(file.samples())},
               {fmt::to_string(file.bytes())},
               {file.sha256()}});
  }
  return text + '\n' + splits.Print(terminal) + '\n' + classes.Print(terminal) + '\n' +
         files.Print(terminal);
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
