// RenderJobs, RenderWorkers, RenderCheckpoints, RenderChecked: one line an entry.
#include <fmt/format.h>

#include <algorithm>

#include "cli/epoch.h"
#include "cli/names.h"
#include "cli/render.h"
#include "cli/table.h"

namespace ringmaster::cli {
namespace {

std::string Done(const v1::JobStatus& job) {
  if (job.total_steps() == 0) return "-";
  const double ratio = static_cast<double>(job.step()) / static_cast<double>(job.total_steps());
  return fmt::format("{:.0f}%", 100 * std::min(1.0, ratio));
}

}  // namespace

std::string RenderJobs(const v1::ListResponse& jobs, const Terminal& terminal) {
  Table table(
      {"JOB", "NAME", "STATE", "STEP", "DONE", "ETA", "SAMPLES/S", "LOSS", "WORKERS", "REASON"});
  for (const v1::JobStatus& job : jobs.jobs()) {
    const bool running = job.state() == v1::JOB_STATE_RUNNING;
    const auto left = JobSecondsLeft(job);
    table.Add({job.job_id(),
               job.name(),
               {StateName(job.state()), ColourOf(job.state())},
               StepOfTotal(job),
               Done(job),
               left ? WholeSeconds(*left) : "-",
               running ? fmt::format("{:.0f}", job.samples_per_second()) : "-",
               job.step() > 0 ? fmt::format("{:.4f}", job.loss()) : "-",
               fmt::format("{}", job.workers_size()),
               Printable(job.reason())});
  }
  return table.Print(terminal);
}

std::string RenderWorkers(const v1::ListWorkersResponse& workers, const Terminal& terminal) {
  Table table({"WORKER", "HOST", "STATE", "DEVICE", "CORES", "THREADS/CORE", "MEMORY/CORE",
               "ADDRESS", "JOB"});
  for (const v1::WorkerStatus& worker : workers.workers()) {
    table.Add({worker.name(), worker.host().empty() ? "-" : worker.host(), worker.state(),
               worker.numerics_class().backend(), fmt::format("{}", worker.cores()),
               fmt::format("{}", worker.threads_per_core()), Bytes(worker.memory_per_core()),
               worker.ring_address(), worker.job_id().empty() ? "-" : worker.job_id()});
  }
  return table.Print(terminal);
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

}  // namespace ringmaster::cli
