#include "cli/show/metric_history.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "cli/show/names.h"
#include "common/job/metrics.h"

namespace ringmaster::cli {
namespace {

constexpr int kMostReadings = 5;  // of a job that goes back while it is read

// `train/loss` is of train, `step/compute` of step, `learning_rate` of nothing.
std::pair<std::string, std::string> SplitName(const std::string& name) {
  const size_t slash = name.find('/');
  if (slash == std::string::npos) return {"", name};
  return {name.substr(0, slash), name.substr(slash + 1)};
}

size_t RankOf(const std::string& name) {
  const std::string split = SplitName(name).first;
  size_t rank = 0;
  while (rank < std::size(job::kSplits) && job::NameOf(job::kSplits[rank]) != split) ++rank;
  return rank;
}

std::string EpochText(uint64_t step, uint64_t steps_per_epoch) {
  if (steps_per_epoch == 0) return "";
  if (step % steps_per_epoch == 0) return fmt::format("{}", step / steps_per_epoch);
  return fmt::format("{:.2f}", static_cast<double>(step) / static_cast<double>(steps_per_epoch));
}

// Names and numbers of ours: nothing needs quotes but what a newer coordinator may send.
std::string CsvText(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

}  // namespace

void MetricReader::GoOnAfter(uint64_t step, uint64_t rewinds) {
  GoOnAt(step);
  rewinds_ = rewinds;
}

void MetricReader::GoOnAt(uint64_t newest) {
  const bool grows = series_ == v1::METRIC_SERIES_EPOCHS && newest > 0;
  after_ = newest - (grows ? 1 : 0);
}

StatusOr<MetricReader::News> MetricReader::Read(Client& client) {
  News news{{}, !after_};
  for (int attempt = 1; attempt <= kMostReadings;) {
    v1::GetMetricsRequest request;
    request.set_job_id(job_id_);
    request.set_series(series_);
    if (after_) request.set_after(*after_);
    RING_ASSIGN_OR_RETURN(const v1::GetMetricsResponse page, client.GetMetrics(request));
    if (page.rewinds() != rewinds_) {
      rewinds_ = page.rewinds();
      if (after_) {
        news = {{}, true};
        after_.reset();
        ++attempt;
        continue;
      }
    }
    news.points.insert(news.points.end(), page.points().begin(), page.points().end());
    if (page.next_after() > 0 || !page.points().empty()) after_ = page.next_after();
    if (page.more()) continue;
    if (!news.points.empty()) GoOnAt(news.points.back().step());
    return news;
  }
  return Error(absl::StatusCode::kAborted,
               "{}: the job went back to a checkpoint again and again while its metrics were read; "
               "try again",
               job_id_);
}

StatusOr<MetricHistory> ReadHistory(Client& client, const std::string& job_id, HistoryParts parts) {
  MetricHistory history;
  RING_ASSIGN_OR_RETURN(history.status, client.Get(job_id));
  if (parts != HistoryParts::kSteps) {
    MetricReader reader(job_id, v1::METRIC_SERIES_EPOCHS);
    RING_ASSIGN_OR_RETURN(MetricReader::News news, reader.Read(client));
    history.epochs = std::move(news.points);
  }
  if (parts != HistoryParts::kEpochs) {
    MetricReader reader(job_id, v1::METRIC_SERIES_STEPS);
    RING_ASSIGN_OR_RETURN(MetricReader::News news, reader.Read(client));
    history.steps = std::move(news.points);
  }
  return history;
}

std::optional<double> ValueOf(const v1::MetricPoint& point, const std::string& name) {
  for (const v1::MetricValue& each : point.values()) {
    if (each.name() == name) return each.value();
  }
  return std::nullopt;
}

std::vector<std::string> NamesOf(const MetricPoints& points) {
  std::vector<std::string> names;
  for (const v1::MetricPoint& point : points) {
    for (const v1::MetricValue& value : point.values()) {
      if (std::ranges::find(names, value.name()) == names.end()) names.push_back(value.name());
    }
  }
  std::ranges::stable_sort(names, {}, RankOf);
  return names;
}

std::string RenderMetrics(const MetricPoints& points, uint64_t steps_per_epoch,
                          const Terminal& terminal) {
  const std::vector<std::string> names = NamesOf(points);
  std::vector<std::string> header = {"EPOCH", "STEP"};
  for (const std::string& name : names) header.push_back(Printable(name));
  Table table(header);
  for (const v1::MetricPoint& point : points) {
    std::vector<Cell> row = {EpochText(point.step(), steps_per_epoch),
                             fmt::format("{}", point.step())};
    for (const std::string& name : names) {
      const std::optional<double> value = ValueOf(point, name);
      row.emplace_back(value ? fmt::format("{:.6g}", *value) : "-");
    }
    table.Add(std::move(row));
  }
  return table.Print(terminal);
}

std::string CsvOf(const std::string& job_id, const MetricPoints& points) {
  std::string text;
  for (const v1::MetricPoint& point : points) {
    for (const v1::MetricValue& value : point.values()) {
      const auto [split, name] = SplitName(value.name());
      text += fmt::format("{},{},{},{},{},{}\n", CsvText(job_id), point.step(), point.epoch(),
                          CsvText(split), CsvText(name), value.value());
    }
  }
  return text;
}

Json ToJson(const v1::JobStatus& status, const std::string& series, const MetricPoints& points) {
  Json list = Json::array();
  for (const v1::MetricPoint& point : points) {
    Json values = Json::object();
    for (const v1::MetricValue& value : point.values()) values[value.name()] = value.value();
    list.push_back({{"step", point.step()},
                    {"epoch", point.epoch()},
                    {"unix_ms", point.unix_ms()},
                    {"values", values}});
  }
  return {{"job_id", status.job_id()},
          {"name", status.name()},
          {"series", series},
          {"steps_per_epoch", Known(status.steps_per_epoch() > 0, status.steps_per_epoch())},
          {"rewinds", status.rewinds()},
          {"points", list}};
}

}  // namespace ringmaster::cli
