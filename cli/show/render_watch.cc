#include "cli/show/render_watch.h"

#include <algorithm>
#include <cmath>

#include <absl/strings/str_join.h>
#include <fmt/format.h>

#include "cli/complaint.h"
#include "cli/show/names.h"
#include "cli/show/terminal.h"
#include "common/job/metrics.h"

namespace ringmaster::cli {
namespace {

// A job whose newest step is older than so many of its steps, and than the seconds, stands still.
constexpr double kStillSteps = 20;
constexpr double kStillSeconds = 5;

std::string Bar(uint64_t done, uint64_t all, size_t columns) {
  // Room for the numbers; the bar shrinks on a narrow terminal.
  const size_t width = columns >= 110 ? 24 : columns >= 80 ? 16 : 8;
  const size_t full = all == 0 ? 0 : done * width / all;
  std::string bar;
  for (size_t i = 0; i < width; ++i) bar += i < full ? "━" : "─";
  return bar;
}

// `  47/188`: as wide at every step of an epoch.
std::string StepOf(const EpochPlace& place) {
  const std::string steps = fmt::format("{}", place.steps);
  return fmt::format("{:>{}}/{}", place.step, steps.size() + 2, steps);
}

std::string Rate(double learning_rate) { return fmt::format("lr: {:.1e}", learning_rate); }

std::string LossScale(const v1::JobStatus& status) {
  const uint64_t skipped = UpdatesKnown(status) ? SkippedSteps(status) : 0;
  return fmt::format("loss scale: {:g}{}", status.loss_scale(),
                     skipped == 0 ? "" : fmt::format(" ({} skipped)", skipped));
}

// `validation loss`; of training alone `loss`.
std::string Title(const v1::Metric& metric) {
  const bool train = metric.split() == v1::SAMPLE_SPLIT_TRAIN;
  const std::string name = Printable(metric.name());
  return train ? name : job::NameOf(metric.split()) + " " + name;
}

void AddMetrics(const v1::JobStatus& status, bool train, std::vector<std::string>* parts) {
  for (const v1::Metric& metric : status.metrics()) {
    if ((metric.split() == v1::SAMPLE_SPLIT_TRAIN) != train) continue;
    parts->push_back(fmt::format("{}: {:.4f}", Title(metric), metric.value()));
  }
}

void AddRates(const v1::JobStatus& status, std::vector<std::string>* parts) {
  if (status.learning_rate() > 0) parts->push_back(Rate(status.learning_rate()));
  if (status.has_loss_scale()) parts->push_back(LossScale(status));
}

// `first - part - part`, on as many lines as it takes.
std::vector<std::string> Flow(const std::string& first, const std::vector<std::string>& parts,
                              size_t columns) {
  std::vector<std::string> lines = {first};
  for (const std::string& part : parts) {
    if (ColumnsOf(lines.back()) + part.size() + 3 > columns) {
      lines.push_back("         ");
    }
    lines.back() += " - " + part;
  }
  return lines;
}

std::string Heading(const EpochPlace& place) {
  return fmt::format("Epoch {}/{}", place.number, place.count);
}

// What its slowest worker does now; empty when nothing is known.
std::string Doing(const v1::JobStatus& status) {
  const auto& workers = status.workers();
  const auto slowest = std::min_element(
      workers.begin(), workers.end(),
      [](const v1::JobWorker& a, const v1::JobWorker& b) { return a.applied() < b.applied(); });
  if (slowest == workers.end() || slowest->phase().empty()) return "";
  return fmt::format("{} in {}", slowest->name(), slowest->phase());
}

// Empty unless no step was told for long.
std::string Still(const v1::JobStatus& status, int64_t now_unix_ms) {
  if (status.last_step_unix_ms() <= 0 || status.state() != v1::JOB_STATE_RUNNING) return "";
  const double silent = static_cast<double>(now_unix_ms - status.last_step_unix_ms()) / 1e3;
  if (silent < std::max(kStillSeconds, kStillSteps * StepSeconds(status).value_or(0))) return "";
  const std::string doing = Doing(status);
  return fmt::format("no step for {}{}", WholeSeconds(silent), doing.empty() ? "" : ", " + doing);
}

std::vector<std::string> RunningLines(const v1::JobStatus& status, const EpochPlace& place,
                                      size_t columns, int64_t now_unix_ms,
                                      const Terminal& terminal) {
  std::string heading = Heading(place);
  const auto left = JobSecondsLeft(status);
  if (left) heading += " - job ETA " + WholeSeconds(*left);
  const std::string still = Still(status, now_unix_ms);
  if (!still.empty()) heading += " - " + terminal.Paint(Colour::kYellow, still);
  std::string line =
      StepOf(place) + " " + terminal.Paint(Colour::kGreen, Bar(place.step, place.steps, columns));
  std::vector<std::string> parts;
  const auto epoch = EpochSecondsLeft(status);
  if (epoch) line += " " + WholeSeconds(*epoch);
  if (const auto step = StepSeconds(status)) {
    line += " " + Seconds(*step) + "/step";
    parts.push_back(fmt::format("{:.0f} samples/s", status.samples_per_second()));
  }
  if (status.step() > 0) {
    AddMetrics(status, true, &parts);
    AddRates(status, &parts);
  }
  if (place.step == place.steps && !Doing(status).empty()) parts.push_back(Doing(status));
  for (const std::string& part : parts) line += " - " + part;
  return {heading, line};
}

std::vector<std::string> StartingLines(const v1::JobStatus& status, const Terminal& terminal) {
  std::vector<std::string> lines;
  for (const v1::StartPhase& phase : status.start_phases()) {
    lines.push_back(fmt::format("  {} {:<11} {:>7}{}",
                                phase.done() ? terminal.Paint(Colour::kGreen, "✓") : "…",
                                phase.name(), Seconds(phase.seconds()),
                                phase.worker().empty() ? "" : "  " + phase.worker()));
  }
  return lines;
}

std::string StateLine(const v1::JobStatus& status, const Terminal& terminal) {
  std::string line = terminal.Paint(ColourOf(status.state()), StateName(status.state()));
  if (status.state() == v1::JOB_STATE_STARTING && status.workers_size() > 0) {
    line += fmt::format("  {}", Count(static_cast<uint64_t>(status.workers_size()), "worker"));
  }
  if (!status.reason().empty()) line += "  " + FirstLine(status.reason());
  return line;
}

}  // namespace

bool IsStarting(const v1::JobStatus& status) {
  return status.state() == v1::JOB_STATE_STARTING ||
         (status.state() == v1::JOB_STATE_RUNNING && status.step() == 0 &&
          status.start_phases_size() > 0);
}

std::vector<std::string> LiveLines(const v1::JobStatus& status, size_t columns, int64_t now_unix_ms,
                                   const Terminal& terminal) {
  const std::optional<EpochPlace> place = PlaceOf(status);
  if (status.state() == v1::JOB_STATE_RUNNING && !IsStarting(status) && place) {
    return RunningLines(status, *place, columns, now_unix_ms, terminal);
  }
  std::vector<std::string> lines = {StateLine(status, terminal)};
  if (!IsStarting(status)) return lines;
  for (std::string& line : StartingLines(status, terminal)) lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> EndedLines(const EndedEpoch& epoch, size_t columns,
                                    const Terminal& terminal) {
  std::string line =
      StepOf(epoch.place) + " " +
      terminal.Paint(Colour::kGreen, Bar(epoch.place.step, epoch.place.steps, columns));
  if (epoch.step_seconds) {
    const double all = *epoch.step_seconds * static_cast<double>(epoch.place.step);
    line += fmt::format(" {} {}/step", WholeSeconds(all), Seconds(*epoch.step_seconds));
  }
  std::vector<std::string> parts;
  AddMetrics(epoch.status, true, &parts);
  AddMetrics(epoch.status, false, &parts);
  AddRates(epoch.status, &parts);
  std::vector<std::string> lines = Flow(line, parts, columns);
  lines.insert(lines.begin(), Heading(epoch.place));
  return lines;
}

std::string PhaseText(const v1::StartPhase& phase) {
  return fmt::format("{} {}{}", phase.name(), Seconds(phase.seconds()),
                     phase.worker().empty() ? "" : " on " + phase.worker());
}

std::string StartedLine(const v1::JobStatus& status) {
  std::vector<std::string> phases;
  double all = 0;
  for (const v1::StartPhase& phase : status.start_phases()) {
    phases.push_back(fmt::format("{} {}", phase.name(), Seconds(phase.seconds())));
    all += phase.seconds();
  }
  if (phases.empty()) return "";
  return fmt::format("started in {}: {}", Seconds(all), absl::StrJoin(phases, ", "));
}

// The lines of `watch` away from a terminal.

namespace {

// Metrics of training and of the evaluations.
std::string Quality(const v1::JobStatus& status) {
  std::string text;
  for (const v1::Metric& metric : status.metrics()) {
    text += fmt::format("  {} {:.4f}", Title(metric), metric.value());
  }
  if (status.has_loss_scale()) text += fmt::format("  loss scale {:g}", status.loss_scale());
  if (UpdatesKnown(status) && SkippedSteps(status) > 0) {
    text += fmt::format("  {} skipped", Count(SkippedSteps(status), "step"));
  }
  return text;
}

// Where it is in its steps, and how fast.
std::string Place(const v1::JobStatus& status) {
  const std::optional<EpochPlace> place = PlaceOf(status);
  if (!place) return "";
  std::string text = fmt::format(
      "  epoch {}/{}  step {}/{}  {:.0f}%", place->number, place->count, status.step(),
      status.total_steps(),
      100.0 * static_cast<double>(status.step()) / static_cast<double>(status.total_steps()));
  if (!IsFinal(status.state()) && status.samples_per_second() > 0) {
    text += fmt::format("  {:.0f} samples/s", status.samples_per_second());
  }
  return text;
}

// The phase of its start that it is in.
std::string Starting(const v1::JobStatus& status) {
  for (const v1::StartPhase& phase : status.start_phases()) {
    if (!phase.done()) return "  " + PhaseText(phase);
  }
  return "";
}

}  // namespace

std::string ProgressLine(const v1::JobStatus& status, const Terminal& terminal) {
  std::string text = terminal.Paint(ColourOf(status.state()), StateName(status.state()));
  text += IsStarting(status) ? Starting(status) : Place(status) + Quality(status);
  const auto left = JobSecondsLeft(status);
  if (left && !IsStarting(status)) text += "  ETA " + WholeSeconds(*left);
  if (!status.reason().empty()) text += "  " + FirstLine(status.reason());
  return text;
}

std::string EndedLine(const EndedEpoch& epoch) {
  return fmt::format("epoch {}/{}  {}/{} steps{}", epoch.place.number, epoch.place.count,
                     epoch.place.step, epoch.place.steps, Quality(epoch.status));
}

}  // namespace ringmaster::cli
