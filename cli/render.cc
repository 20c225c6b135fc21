#include "cli/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cli/duration.h"
#include "cli/exit_code.h"
#include "cli/json.h"
#include "cli/table.h"

namespace ringmaster::cli {
namespace {

Colour ColourOf(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_RUNNING:
    case v1::JOB_STATE_SUCCEEDED:
      return Colour::kGreen;
    case v1::JOB_STATE_FAILED:
      return Colour::kRed;
    default:
      return Colour::kYellow;
  }
}

std::string Percent(double ratio) { return fmt::format("{:.1f}%", 100 * ratio); }

std::string Bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string Steps(const v1::JobStatus& status) {
  return status.total_steps() == 0 ? fmt::format("{}", status.step())
                                   : fmt::format("{}/{}", status.step(), status.total_steps());
}

// [0, 1, 2, 5] as `0-2 5`.
template <typename Numbers>
std::string Ranges(const Numbers& numbers) {
  std::string text;
  for (int i = 0; i < numbers.size();) {
    int j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1) ++j;
    if (!text.empty()) text += ' ';
    text += i == j ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[j]);
    i = j + 1;
  }
  return text;
}

// Remaining time at the present speed; empty when there is none to tell from.
std::string Eta(const v1::JobStatus& status) {
  if (status.state() != v1::JOB_STATE_RUNNING || status.samples_per_second() <= 0 ||
      status.total_steps() <= status.step()) {
    return "";
  }
  const double samples =
      static_cast<double>(status.total_steps() - status.step()) * status.spec().batch();
  const double seconds = std::min(samples / status.samples_per_second(), 1e9);
  return FormatDuration(std::chrono::seconds(static_cast<int64_t>(seconds)));
}

// What is known of a run's quality and speed, in reading order.
std::vector<std::string> Figures(const v1::JobStatus& status) {
  std::vector<std::string> figures;
  if (!IsFinal(status.state()) && status.samples_per_second() > 0) {
    figures.push_back(fmt::format("{:.0f} samples/s", status.samples_per_second()));
  }
  if (status.step() > 0) {
    figures.push_back(fmt::format("loss {:.4f}", status.loss()));
    figures.push_back("accuracy " + Percent(status.accuracy()));
  }
  if (status.has_test_accuracy()) {
    figures.push_back("test accuracy " + Percent(status.test_accuracy()));
  }
  const std::string eta = Eta(status);
  if (!eta.empty()) figures.push_back("ETA " + eta);
  if (!status.reason().empty()) figures.push_back(status.reason());
  return figures;
}

double Done(const v1::JobStatus& status) {
  if (status.total_steps() == 0) return 0;
  return std::min(1.0, static_cast<double>(status.step()) / status.total_steps());
}

std::string WorkerTable(const v1::JobStatus& status, const Terminal& terminal) {
  Table table({"WORKER", "SHARDS", "RING BYTES"});
  for (const v1::JobWorker& worker : status.workers()) {
    table.Add({worker.name(), Ranges(worker.shards()), Bytes(worker.ring_bytes())});
  }
  return table.Print(terminal);
}

}  // namespace

std::string RenderStatus(const v1::JobStatus& status, const Terminal& terminal) {
  std::vector<std::pair<std::string, std::string>> lines = {
      {"job", status.job_id()},
      {"name", status.name()},
      {"state", terminal.Paint(ColourOf(status.state()), StateName(status.state()))}};
  const auto add = [&](bool known, const char* key, const std::string& value) {
    if (known) lines.emplace_back(key, value);
  };
  add(!status.reason().empty(), "reason", status.reason());
  add(true, "step", Steps(status));
  add(true, "epoch", fmt::format("{}", status.epoch()));
  add(status.step() > 0, "loss", fmt::format("{:.6f}", status.loss()));
  add(status.step() > 0, "accuracy", Percent(status.accuracy()));
  add(status.has_test_accuracy(), "test accuracy", Percent(status.test_accuracy()));
  add(status.samples_per_second() > 0, "speed",
      fmt::format("{:.0f} samples/s", status.samples_per_second()));
  add(!Eta(status).empty(), "ETA", Eta(status));
  add(!GenerationName(status).empty(), "generation", GenerationName(status));
  if (status.has_checkpoint()) {
    add(true, "checkpoint",
        fmt::format("step {} in {}", status.checkpoint().step(), status.checkpoint().path()));
    add(true, "sha256", status.checkpoint().sha256());
  }
  std::string text;
  for (const auto& [key, value] : lines) text += fmt::format("{:<14} {}\n", key + ":", value);
  if (status.workers_size() > 0) text += "\n" + WorkerTable(status, terminal);
  return text;
}

std::string RenderJobs(const v1::ListResponse& jobs, const Terminal& terminal) {
  Table table({"JOB", "NAME", "STATE", "STEP", "DONE", "SAMPLES/S", "LOSS", "WORKERS", "REASON"});
  for (const v1::JobStatus& job : jobs.jobs()) {
    const bool running = job.state() == v1::JOB_STATE_RUNNING;
    table.Add({job.job_id(),
               job.name(),
               {StateName(job.state()), ColourOf(job.state())},
               Steps(job),
               job.total_steps() == 0 ? "-" : fmt::format("{:.0f}%", 100 * Done(job)),
               running ? fmt::format("{:.0f}", job.samples_per_second()) : "-",
               job.step() > 0 ? fmt::format("{:.4f}", job.loss()) : "-",
               fmt::format("{}", job.workers_size()),
               job.reason()});
  }
  return table.Print(terminal);
}

std::string RenderWorkers(const v1::ListWorkersResponse& workers, const Terminal& terminal) {
  Table table({"WORKER", "STATE", "CORES", "THREADS/CORE", "MEMORY/CORE", "ADDRESS", "JOB"});
  for (const v1::WorkerStatus& worker : workers.workers()) {
    table.Add({worker.name(), worker.state(), fmt::format("{}", worker.cores()),
               fmt::format("{}", worker.threads_per_core()), Bytes(worker.memory_per_core()),
               worker.ring_address(), worker.job_id().empty() ? "-" : worker.job_id()});
  }
  return table.Print(terminal);
}

std::string RenderCheckpoints(const v1::ListCheckpointsResponse& checkpoints,
                              const Terminal& terminal) {
  Table table({"STEP", "SHA256", "PATH"});
  for (const v1::CheckpointRef& checkpoint : checkpoints.checkpoints()) {
    table.Add({fmt::format("{}", checkpoint.step()), checkpoint.sha256(), checkpoint.path()});
  }
  return table.Print(terminal);
}

std::string RenderWhy(const v1::WhyResponse& why, const Terminal& terminal) {
  std::string text = terminal.Paint(ColourOf(why.state()), StateName(why.state()));
  text += why.reason().empty() ? "\n" : ": " + why.reason() + "\n";
  for (const std::string& line : why.history()) text += "  " + line + "\n";
  return text;
}

std::string ProgressLine(const v1::JobStatus& status, const Terminal& terminal) {
  std::string text = terminal.Paint(ColourOf(status.state()), StateName(status.state()));
  if (status.total_steps() > 0) {
    text += fmt::format("  step {}  {:.0f}%", Steps(status), 100 * Done(status));
  }
  for (const std::string& figure : Figures(status)) text += "  " + figure;
  return text;
}

std::string ProgressBar(const v1::JobStatus& status, int width, const Terminal& terminal) {
  std::string text = terminal.Paint(ColourOf(status.state()), StateName(status.state()));
  if (status.total_steps() > 0) {
    const int full = static_cast<int>(Done(status) * width);
    std::string bar;
    for (int i = 0; i < width; ++i) bar += i < full ? "━" : "─";
    text += fmt::format("  {}  {}", Steps(status), bar);
  }
  for (const std::string& figure : Figures(status)) text += "  " + figure;
  return text;
}

}  // namespace ringmaster::cli
