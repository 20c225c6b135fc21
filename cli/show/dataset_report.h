// What `ringctl dataset stat`, `head` and `verify` print of a dataset. Values in, text out;
// thread-safe (free functions).
#pragma once

#include <string>
#include <vector>

#include "cli/show/json.h"
#include "cli/show/terminal.h"
#include "common/data/dataset.h"
#include "common/data/statistics.h"
#include "common/data/verify.h"

namespace ringmaster::cli {

// One dataset, looked through.
struct DatasetStatistics {
  std::string path;
  v1::DatasetFacts facts;
  data::SplitStatistics train, test;
};

[[nodiscard]] Json ToJson(const DatasetStatistics& dataset);
[[nodiscard]] std::string RenderDataset(const DatasetStatistics& dataset, const Terminal& terminal);

// The first samples of a split.
struct DatasetHead {
  std::string path;
  v1::DatasetFacts facts;
  data::Split split = data::Split::kTrain;
  // A value of a sample: in words, and as JSON has it.
  struct Cell {
    std::string text;
    Json json;
  };
  std::vector<std::vector<Cell>> samples;  // of each column
};
// Errors as Dataset::Read.
[[nodiscard]] StatusOr<DatasetHead> HeadOf(const std::string& path, const data::Dataset& dataset,
                                           data::Split split, uint64_t samples);
[[nodiscard]] Json ToJson(const DatasetHead& head);
[[nodiscard]] std::string RenderHead(const DatasetHead& head, const Terminal& terminal);

// {path, format, ok, files, problems}.
[[nodiscard]] Json ToJson(const std::string& path, const data::Verification& verification);
// SHA-256 and name of each file, as sha256sum prints them.
[[nodiscard]] std::string RenderSha256(const data::Verification& verification);

}  // namespace ringmaster::cli
