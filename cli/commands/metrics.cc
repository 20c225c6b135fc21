#include <algorithm>
#include <cctype>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "cli/commands/commands.h"
#include "cli/event_file.h"
#include "cli/show/braille_plot.h"
#include "cli/show/metric_history.h"
#include "cli/show/names.h"
#include "common/text.h"

namespace ringmaster::cli {

// ringctl metrics JOB...: what a job's metrics were, as a table, CSV, JSON, a plot, or files of
// TensorBoard.

namespace {

constexpr std::chrono::seconds kLookAgain{1};
constexpr std::chrono::seconds kPatience{30};  // with a coordinator that had answered
constexpr int kMostAttempts = 5;
constexpr char kDefaultMetric[] = "train/loss";
constexpr char kEpochTag[] = "epoch";              // every point of epochs has it in event files
constexpr char kStepTag[] = "samples_per_second";  // every point of steps

struct MetricsOptions {
  std::vector<std::string> jobs;
  bool steps = false;
  std::optional<std::string> plot;  // the metric; empty: kDefaultMetric
  std::string tensorboard;
  bool follow = false;
};

Status CheckOptions(const Common& common, const MetricsOptions& options) {
  const bool plots = options.plot.has_value(), exports = !options.tensorboard.empty();
  if (options.follow && !exports) {
    return InvalidArgument("-f goes on writing event files: give --tensorboard-dir DIR, too");
  }
  if (plots && exports) return InvalidArgument("--plot or --tensorboard-dir, not both");
  if ((plots || exports) && common.output != Output::kTable) {
    return InvalidArgument("{} and -o exclude each other", plots ? "--plot" : "--tensorboard-dir");
  }
  if ((plots || exports) && options.steps) {
    return InvalidArgument("--steps is for tables, CSV and JSON: {} takes both series",
                           plots ? "--plot" : "--tensorboard-dir");
  }
  return absl::OkStatus();
}

// ---- as a table, as CSV, as JSON ----------------------------------------------------------------

StatusOr<ExitCode> ShowMetrics(const Common& common, const MetricsOptions& options) {
  const bool several = options.jobs.size() > 1, csv = common.output == Output::kCsv;
  const HistoryParts part = options.steps ? HistoryParts::kSteps : HistoryParts::kEpochs;
  bool begun = false;
  return AskEach(
      common, options.jobs, [&](Client& client, const std::string& job_id) -> StatusOr<JobAnswer> {
        RING_ASSIGN_OR_RETURN(const MetricHistory history, ReadHistory(client, job_id, part));
        const MetricPoints& points = options.steps ? history.steps : history.epochs;
        if (csv) {  // no empty line between jobs
          Print((std::exchange(begun, true) ? "" : kCsvHeader) + CsvOf(job_id, points));
          return JobAnswer{};
        }
        if (common.json()) {
          return JobAnswer{ToJson(history.status, options.steps ? "steps" : "epochs", points), ""};
        }
        std::string text =
            several ? fmt::format("{}  {}\n", job_id, Printable(history.status.name())) : "";
        text += points.empty()
                    ? fmt::format("no {} yet\n",
                                  options.steps ? "step was reported" : "epoch has ended")
                    : RenderMetrics(points, history.status.steps_per_epoch(), Terminal::Of(stdout));
        return JobAnswer{Json(), std::move(text)};
      });
}

// ---- as a plot ----------------------------------------------------------------------------------

Status UnknownMetric(const std::string& metric, const std::vector<std::string>& known) {
  if (known.empty()) return InvalidArgument("--plot {}: there are no metrics yet", metric);
  const std::string guess = Nearest(metric, known);
  std::string names;
  for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
  return InvalidArgument("--plot: expected one of {}; got {}{}", names, metric,
                         guess.empty() ? "" : fmt::format("; did you mean {}?", guess));
}

// Of steps where it has some there: more of them.
Curve CurveOf(const MetricHistory& history, const std::string& metric) {
  Curve curve;
  curve.label = fmt::format("{}  {}", history.status.job_id(), Printable(history.status.name()));
  for (const MetricPoints* points : {&history.steps, &history.epochs}) {
    if (!curve.points.empty()) break;
    for (const v1::MetricPoint& point : *points) {
      if (const auto value = ValueOf(point, metric)) {
        curve.points.emplace_back(static_cast<double>(point.step()), *value);
      }
    }
  }
  return curve;
}

StatusOr<ExitCode> PlotMetrics(const Common& common, const MetricsOptions& options) {
  const std::string metric = options.plot->empty() ? kDefaultMetric : *options.plot;
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  std::vector<Curve> curves;
  std::vector<std::string> known;
  bool any = false;
  for (const std::string& job : options.jobs) {
    RING_ASSIGN_OR_RETURN(const std::string job_id, client.IdOf(job));
    RING_ASSIGN_OR_RETURN(const MetricHistory history,
                          ReadHistory(client, job_id, HistoryParts::kBoth));
    for (const MetricPoints* points : {&history.epochs, &history.steps}) {
      for (const std::string& name : NamesOf(*points)) {
        if (std::ranges::find(known, name) == known.end()) known.push_back(Printable(name));
      }
    }
    curves.push_back(CurveOf(history, metric));
    any = any || !curves.back().points.empty();
  }
  if (!any) return UnknownMetric(metric, known);
  PlotSize size;
  size.columns = Terminal::ColumnsOf(stdout);
  Print(RenderPlot(metric + " by step", curves, size, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

// ---- as event files -----------------------------------------------------------------------------

// One job's event file, and where it stands.
class Export {
 public:
  Export(std::string job_id, std::string folder)
      : job_id_(std::move(job_id)),
        folder_(std::move(folder)),
        epochs_(job_id_, v1::METRIC_SERIES_EPOCHS),
        steps_(job_id_, v1::METRIC_SERIES_STEPS) {}

  [[nodiscard]] bool over() const { return over_; }
  [[nodiscard]] const std::string& folder() const { return run_; }

  // Appends what has come; the file is there afterwards.
  Status Update(Client& client) {
    RING_ASSIGN_OR_RETURN(const v1::JobStatus status, client.Get(job_id_));
    if (!file_) RING_RETURN_IF_ERROR(Open(status));
    for (int attempt = 1; attempt <= kMostAttempts; ++attempt) {
      MetricReader epochs_read = epochs_, steps_read = steps_;  // a reading that fails is none
      RING_ASSIGN_OR_RETURN(MetricReader::News epochs, epochs_read.Read(client));
      RING_ASSIGN_OR_RETURN(MetricReader::News steps, steps_read.Read(client));
      epochs_ = std::move(epochs_read);
      steps_ = std::move(steps_read);
      const uint64_t rewinds = epochs_.rewinds();
      const bool goes_on = rewinds == file_->rewinds();
      if (rewinds == steps_.rewinds() && (goes_on || (epochs.whole && steps.whole))) {
        if (!goes_on) {
          RING_RETURN_IF_ERROR(file_->Restart(rewinds, status.last_step_unix_ms()));
          order_ = EventOrder();
        }
        for (v1::MetricPoint& point : epochs.points) {
          v1::MetricValue& epoch = *point.add_values();
          epoch.set_name(kEpochTag);
          epoch.set_value(static_cast<double>(point.epoch()));
        }
        over_ = IsFinal(status.state());
        for (const v1::MetricPoint& point : order_.Next(status, epochs.points, steps.points)) {
          RING_RETURN_IF_ERROR(file_->Add(point));
        }
        return absl::OkStatus();
      }
      epochs_.BeginAnew();  // it went back to a checkpoint between the two
      steps_.BeginAnew();
    }
    return Error(absl::StatusCode::kAborted,
                 "{}: the job went back to a checkpoint again and again; try again", job_id_);
  }

 private:
  // A name of a run is a name of a folder.
  Status Open(const v1::JobStatus& status) {
    std::string run = fmt::format("{}-{}", status.job_id(), status.name());
    for (char& c : run) {
      const bool plain =
          std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
      if (!plain) c = '_';
    }
    run_ = folder_ + "/" + run;
    RING_ASSIGN_OR_RETURN(file_,
                          EventFile::Open(run_, fmt::format("events.out.tfevents.{}.ringctl",
                                                            status.submitted_unix_ms() / 1'000)));
    if (const std::optional<uint64_t> step = file_->NewestStep(kEpochTag)) {
      epochs_.GoOnAfter(*step, file_->rewinds());
      order_ = EventOrder(*step);
    }
    if (const std::optional<uint64_t> step = file_->NewestStep(kStepTag)) {
      steps_.GoOnAfter(*step, file_->rewinds());
    }
    return absl::OkStatus();
  }

  const std::string job_id_, folder_;
  std::string run_;
  MetricReader epochs_, steps_;
  std::unique_ptr<EventFile> file_;
  EventOrder order_;
  bool over_ = false;
};

StatusOr<ExitCode> ExportMetrics(const Common& common, const MetricsOptions& options) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  std::vector<std::unique_ptr<Export>> exports;
  for (const std::string& job : options.jobs) {
    RING_ASSIGN_OR_RETURN(const std::string job_id, client.IdOf(job));
    exports.push_back(std::make_unique<Export>(job_id, options.tensorboard));
    RING_RETURN_IF_ERROR(exports.back()->Update(client));
    Say(exports.back()->folder());
  }
  auto answered = std::chrono::steady_clock::now();
  const auto all_over = [&] {
    return std::ranges::all_of(exports, [](const auto& each) { return each->over(); });
  };
  while (options.follow && !all_over()) {
    std::this_thread::sleep_for(kLookAgain);
    for (const auto& each : exports) {
      if (each->over()) continue;
      const Status status = each->Update(client);
      const auto now = std::chrono::steady_clock::now();
      const bool away = ExitCodeOf(status) == ExitCode::kUnreachable;
      if (!status.ok() && (!away || now - answered > kPatience)) return status;
      if (status.ok()) answered = now;
    }
  }
  return ExitCode::kOk;
}

StatusOr<ExitCode> Metrics(const Common& common, const MetricsOptions& options) {
  RING_RETURN_IF_ERROR(CheckOptions(common, options));
  if (options.plot) return PlotMetrics(common, options);
  if (!options.tensorboard.empty()) return ExportMetrics(common, options);
  return ShowMetrics(common, options);
}

}  // namespace

void AddMetrics(CommandLine& line) {
  const auto options = std::make_shared<MetricsOptions>();
  CLI::App* const command =
      line.Add("metrics", "show what the metrics of jobs were, epoch by epoch",
               Examples("ringctl metrics j0001", "ringctl metrics j0001 j0002 --plot train/loss",
                        "ringctl metrics j0001 --tensorboard-dir runs -f"),
               [&line, options] { return Metrics(line.common(), *options); });
  line.AllowCsv(command);
  AddJobs(command, &options->jobs);
  command->add_flag("--steps", options->steps, "steps instead of epochs, thinned");
  command
      ->add_option_function<std::vector<std::string>>(
          "--plot",
          [options](const std::vector<std::string>& words) {
            options->plot = words.empty() ? "" : words.front();
          },
          "draw one metric in the terminal, of all jobs; train/loss when none is named")
      ->type_name("METRIC")
      ->expected(0, 1);
  command
      ->add_option("--tensorboard-dir", options->tensorboard,
                   "write event files of TensorBoard, one folder a job")
      ->type_name("DIR");
  command->add_flag("-f,--follow", options->follow,
                    "go on writing event files until the jobs ended");
}

}  // namespace ringmaster::cli
