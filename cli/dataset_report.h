// What `ringctl dataset stat` and `verify` print of a dataset. Values in, text out; thread-safe
// (free functions).
#pragma once

#include <string>

#include "cli/json.h"
#include "cli/terminal.h"
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

// {path, format, ok, files, problems}.
[[nodiscard]] Json ToJson(const std::string& path, const data::Verification& verification);
// SHA-256 and name of each file, as sha256sum prints them.
[[nodiscard]] std::string RenderSha256(const data::Verification& verification);

}  // namespace ringmaster::cli
