#include "cli/render.h"

#include <algorithm>
#include <optional>

#include <absl/strings/ascii.h>
#include <fmt/format.h>

#include "cli/epoch.h"
#include "cli/names.h"
#include "cli/terminal.h"
#include "common/amount.h"
#include "common/job/metrics.h"

namespace ringmaster::cli {
// RenderJobs, RenderWorkers, RenderCheckpoints, RenderChecked: one line an entry.

namespace {

std::string Done(const v1::JobStatus& job) {
  if (job.total_steps() == 0) return "-";
  const double ratio = static_cast<double>(job.step()) / static_cast<double>(job.total_steps());
  return fmt::format("{:.0f}%", 100 * std::min(1.0, ratio));
}

// `612/700 W`, `612 W` without a limit, `-/700 W` where only that is known.
std::string Share(std::optional<double> part, std::optional<double> whole, int decimals,
                  const char* unit) {
  if (!part && !whole) return "-";
  std::string text = part ? fmt::format("{:.{}f}", *part, decimals) : "-";
  if (whole) text += fmt::format("/{:.{}f}", *whole, decimals);
  return fmt::format("{} {}", text, unit);
}

std::string Memory(const v1::DeviceFigures& device) {
  const auto gib = [](uint64_t bytes) {
    return bytes == 0 ? std::nullopt : std::optional(static_cast<double>(bytes) / (1 << 30));
  };
  return Share(gib(device.memory_used()), gib(device.memory_total()), 1, "GiB");
}

std::string Power(const v1::DeviceFigures& device) {
  const auto watts = [](bool known, uint32_t milliwatts) {
    return known ? std::optional(milliwatts / 1e3) : std::nullopt;
  };
  return Share(watts(device.has_power(), device.power()),
               watts(device.has_power_limit(), device.power_limit()), 0, "W");
}

// The name last: it is the longest, and the least in a line that is cut. Empty without devices.
std::string DeviceTable(const v1::ListWorkersResponse& workers, const Terminal& terminal) {
  Table table({"WORKER", "DEVICE", "MEMORY", "UTIL", "TEMP", "POWER", "NAME"});
  bool any = false;
  for (const v1::WorkerStatus& worker : workers.workers()) {
    for (const v1::DeviceFigures& device : worker.devices()) {
      any = true;
      table.Add({worker.name(), fmt::format("{}:{}", Printable(device.kind()), device.index()),
                 Memory(device),
                 device.has_utilization() ? fmt::format("{}%", device.utilization()) : "-",
                 device.has_temperature() ? fmt::format("{} C", device.temperature()) : "-",
                 Power(device), device.name().empty() ? "-" : Printable(device.name())});
    }
  }
  return any ? table.Print(terminal) : "";
}

}  // namespace

std::string RenderJobs(const v1::ListResponse& jobs, const Terminal& terminal) {
  Table table(
      {"JOB", "NAME", "STATE", "STEP", "DONE", "ETA", "SAMPLES/S", "LOSS", "WORKERS", "REASON"});
  for (const v1::JobStatus& job : jobs.jobs()) {
    const bool running = job.state() == v1::JOB_STATE_RUNNING;
    const auto left = JobSecondsLeft(job);
    const v1::Metric* const loss = job::Find(job.metrics(), v1::SAMPLE_SPLIT_TRAIN, "loss");
    table.Add({job.job_id(),
               job.name(),
               {StateName(job.state()), ColourOf(job.state())},
               StepOfTotal(job),
               Done(job),
               left ? WholeSeconds(*left) : "-",
               running ? fmt::format("{:.0f}", job.samples_per_second()) : "-",
               loss == nullptr ? "-" : fmt::format("{:.4f}", loss->value()),
               fmt::format("{}", job.workers_size()),
               FirstLine(job.reason())});
  }
  return table.Print(terminal);
}

std::string RenderWorkers(const v1::ListWorkersResponse& workers, const Terminal& terminal) {
  Table table({"WORKER", "HOST", "STATE", "DEVICE", "CORES", "THREADS/CORE", "MEMORY/CORE",
               "ADDRESS", "JOB"});
  for (const v1::WorkerStatus& worker : workers.workers()) {
    table.Add({worker.name(), worker.host().empty() ? "-" : worker.host(), worker.state(),
               worker.numerics_class().backend(), fmt::format("{}", worker.cores()),
               fmt::format("{}", worker.threads_per_core()), FormatBytes(worker.memory_per_core()),
               worker.ring_address(), worker.job_id().empty() ? "-" : worker.job_id()});
  }
  const std::string devices = DeviceTable(workers, terminal);
  return table.Print(terminal) + (devices.empty() ? "" : "\n" + devices);
}

std::string RenderChecked(const v1::VerifyCheckpointsResponse& checked, const Terminal& terminal) {
  Table table({"STEP", "RESULT"});
  for (const v1::CheckedCheckpoint& one : checked.checkpoints()) {
    const bool whole = one.error().empty();
    table.Add({fmt::format("{}", one.checkpoint().step()),
               {whole ? "ok" : Printable(one.error()), whole ? Colour::kGreen : Colour::kRed}});
  }
  return table.Print(terminal);
}

std::string RenderCheckpoints(const v1::ListCheckpointsResponse& checkpoints,
                              const Terminal& terminal) {
  Table table({"STEP", "METRIC", "SHA256", "PATH"});
  for (const v1::CheckpointRef& checkpoint : checkpoints.checkpoints()) {
    table.Add({fmt::format("{}", checkpoint.step()),
               checkpoint.has_metric() ? fmt::format("{:.4f}", checkpoint.metric()) : "-",
               checkpoint.sha256(), checkpoint.path()});
  }
  return table.Print(terminal);
}

// RenderLogLine and RenderEvents: what happened, with its time.

std::string RenderEvents(const v1::ListEventsResponse& events, const Terminal& terminal) {
  Table table({"TIME", "SEVERITY", "TYPE", "SUBJECT", "MESSAGE"});
  for (const v1::Event& event : events.events()) {
    table.Add({DateAndTime(event.unix_ms()),
               {event.severity(), ColourOfSeverity(event.severity())},
               event.type(),
               event.subject(),
               Printable(event.message())});
  }
  return table.Print(terminal);
}

std::string RenderLogLine(const v1::LogLine& line, const Terminal& terminal) {
  std::string text;
  if (line.lost() > 0) {
    text = terminal.Paint(Colour::kYellow,
                          fmt::format("... {} lost ...", Count(line.lost(), "line"))) +
           "\n";
  }
  const std::string level = fmt::format("{:<7}", absl::AsciiStrToUpper(line.level()));
  return text + fmt::format("{} {} {} {}\n", TimeOfDay(line.unix_ms()), line.worker(),
                            terminal.Paint(ColourOfSeverity(line.level()), level),
                            Printable(line.text()));
}

}  // namespace ringmaster::cli
