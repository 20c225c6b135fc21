// The history of a job's metrics: how it comes from the coordinator, and what it looks like as a
// table, as CSV and as JSON. Thread-compatible.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/client.h"
#include "cli/show/json.h"
#include "cli/show/terminal.h"
#include "common/status.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::cli {

using MetricPoints = std::vector<v1::MetricPoint>;  // by step

// One series of a job, all of its pages: those after a step, and again from the begin when the job
// went back meanwhile.
class MetricReader {
 public:
  MetricReader(std::string job_id, v1::MetricSeries series)
      : job_id_(std::move(job_id)), series_(series) {}

  // As a copy that is stored elsewhere has it: its newest step, not 0, and the rewinds that it
  // knows of.
  void GoOnAfter(uint64_t step, uint64_t rewinds);
  void BeginAnew() { after_.reset(); }
  // What has come since the last call, and the newest epoch once more, which an evaluation may have
  // joined; `whole`: instead of all that came before.
  struct News {
    MetricPoints points;
    bool whole = false;
  };
  [[nodiscard]] StatusOr<News> Read(Client& client);
  [[nodiscard]] uint64_t rewinds() const { return rewinds_; }

 private:
  void GoOnAt(uint64_t newest);

  std::string job_id_;
  v1::MetricSeries series_;
  std::optional<uint64_t> after_;
  uint64_t rewinds_ = 0;
};

struct MetricHistory {
  v1::JobStatus status;
  MetricPoints epochs, steps;
};
enum class HistoryParts { kEpochs, kSteps, kBoth };
[[nodiscard]] StatusOr<MetricHistory> ReadHistory(Client& client, const std::string& job_id,
                                                  HistoryParts parts);

// nullopt when the point has none of that name.
[[nodiscard]] std::optional<double> ValueOf(const v1::MetricPoint& point, const std::string& name);
// Of every value in the points: train, validation, test, then the rest, each as it came.
[[nodiscard]] std::vector<std::string> NamesOf(const MetricPoints& points);

// A row a point, a column a value. Complete epochs, with a fraction inside of one.
[[nodiscard]] std::string RenderMetrics(const MetricPoints& points, uint64_t steps_per_epoch,
                                        const Terminal& terminal);
// Without the first line, kCsvHeader. Numbers are the shortest text that reads back as the same
// float64.
inline constexpr char kCsvHeader[] = "job,step,epoch,split,name,value\n";
[[nodiscard]] std::string CsvOf(const std::string& job_id, const MetricPoints& points);
[[nodiscard]] Json ToJson(const v1::JobStatus& status, const std::string& series,
                          const MetricPoints& points);

}  // namespace ringmaster::cli
