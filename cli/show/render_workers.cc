// RenderWorkers: a line for each worker, then why free ones are, their devices, and what they
// fetch.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "cli/show/names.h"
#include "cli/show/render.h"
#include "cli/show/terminal.h"
#include "common/amount.h"

namespace ringmaster::cli {
namespace {

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

// Workers that fetch data; empty when none does.
std::string FetchTable(const v1::ListWorkersResponse& workers, const Terminal& terminal) {
  Table table({"WORKER", "FETCHES DATA", "OF", "RATE", "FROM"});
  bool any = false;
  for (const v1::WorkerStatus& worker : workers.workers()) {
    if (!worker.has_data_fetch()) continue;
    any = true;
    const v1::DataFetch& fetch = worker.data_fetch();
    const bool known = fetch.total_bytes() > 0;
    table.Add({worker.name(), FormatBytes(fetch.bytes()),
               known ? FormatBytes(fetch.total_bytes()) : "-",
               FormatBytes(static_cast<uint64_t>(std::max(0.0, fetch.bytes_per_second()))) + "/s",
               Printable(fetch.source())});
  }
  return any ? table.Print(terminal) : "";
}

// `j0004`, and what this worker costs it: `j0004 (12% faster without it)`.
std::string JobOf(const v1::WorkerStatus& worker, const v1::ListWorkersResponse& workers) {
  if (worker.job_id().empty()) return "-";
  if (!(worker.faster_without() > 0)) return worker.job_id();
  const auto slow = std::count_if(
      workers.workers().begin(), workers.workers().end(), [&](const v1::WorkerStatus& other) {
        return other.job_id() == worker.job_id() && other.faster_without() > 0;
      });
  return fmt::format("{} ({:.0f}% faster without it{})", worker.job_id(), worker.faster_without(),
                     slow > 1 ? fmt::format(" and {} more", slow - 1) : "");
}

}  // namespace

std::string RenderWorkers(const v1::ListWorkersResponse& workers, const Terminal& terminal) {
  Table table({"WORKER", "HOST", "STATE", "CLASS", "CORES", "THREADS/CORE", "MEMORY/CORE",
               "ADDRESS", "JOB"});
  for (const v1::WorkerStatus& worker : workers.workers()) {
    table.Add({worker.name(), worker.host().empty() ? "-" : worker.host(), worker.state(),
               Printable(worker.class_()), fmt::format("{}", worker.cores()),
               fmt::format("{}", worker.threads_per_core()), FormatBytes(worker.memory_per_core()),
               worker.ring_address(), JobOf(worker, workers)});
  }
  const std::string devices = DeviceTable(workers, terminal);
  const std::string fetches = FetchTable(workers, terminal);
  std::string reasons;
  for (const v1::WorkerStatus& worker : workers.workers()) {
    if (worker.reason().empty()) continue;
    reasons += fmt::format("{} is free: {}\n", worker.name(), Printable(worker.reason()));
  }
  return table.Print(terminal) + reasons + (devices.empty() ? "" : "\n" + devices) +
         (fetches.empty() ? "" : "\n" + fetches);
}

}  // namespace ringmaster::cli
