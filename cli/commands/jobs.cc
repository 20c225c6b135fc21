#include "cli/client.h"
#include "cli/command_line.h"
#include "cli/commands/commands.h"
#include "cli/show/json.h"
#include "cli/show/render.h"
#include "common/job/job_file.h"
#include "common/job/resolve.h"

namespace ringmaster::cli {

// ringctl ps: all jobs, newest first.

namespace {

StatusOr<ExitCode> Ps(const Common& common) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const v1::ListResponse jobs, client.List());
  Print(common.json() ? ToJson(jobs).dump(2) + "\n" : RenderJobs(jobs, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

}  // namespace

void AddPs(CommandLine& line) {
  line.Add("ps", "list all jobs, newest first", Examples("ringctl ps", "ringctl ps -o json"),
           [&line] { return Ps(line.common()); });
}

// ringctl status JOB...: jobs, now; ringctl spec JOB: the settings of one.

namespace {

StatusOr<ExitCode> ShowStatus(const Common& common, const std::vector<std::string>& jobs) {
  return AskEach(common, jobs,
                 [](Client& client, const std::string& job_id) -> StatusOr<JobAnswer> {
                   RING_ASSIGN_OR_RETURN(const v1::JobStatus status, client.Get(job_id));
                   return JobAnswer{ToJson(status), RenderStatus(status, Terminal::Of(stdout))};
                 });
}

StatusOr<ExitCode> ShowSpec(const Common& common, const std::string& job) {
  return AskEach(common, {job},
                 [](Client& client, const std::string& job_id) -> StatusOr<JobAnswer> {
                   RING_ASSIGN_OR_RETURN(const v1::JobStatus status, client.Get(job_id));
                   const v1::JobSpec spec = job::WithDefaults(status.spec());
                   return JobAnswer{ToJson(spec), job::PrintJobFile(spec)};
                 });
}

}  // namespace

void AddStatus(CommandLine& line) {
  const auto jobs = std::make_shared<std::vector<std::string>>();
  AddJobs(line.Add("status", "show jobs: figures, checkpoints, workers",
                   Examples("ringctl status j0001", "ringctl status j0001 j0002 -o json"),
                   [&line, jobs] { return ShowStatus(line.common(), *jobs); }),
          jobs.get());
}

void AddSpec(CommandLine& line) {
  const auto job = std::make_shared<std::string>();
  AddJob(line.Add("spec", "print a job's settings as a job file, every default filled in",
                  Examples("ringctl spec j0001 > job.yaml"),
                  [&line, job] { return ShowSpec(line.common(), *job); }),
         job.get());
}

// ringctl why JOB...: why jobs are in the states they are in, and how they got there.

namespace {

StatusOr<ExitCode> Why(const Common& common, const std::vector<std::string>& jobs) {
  const bool several = jobs.size() > 1;
  return AskEach(common, jobs,
                 [&](Client& client, const std::string& job_id) -> StatusOr<JobAnswer> {
                   RING_ASSIGN_OR_RETURN(const v1::WhyResponse why, client.Why(job_id));
                   const std::string text = RenderWhy(why, Terminal::Of(stdout));
                   return JobAnswer{ToJson(job_id, why), several ? job_id + ": " + text : text};
                 });
}

}  // namespace

void AddWhy(CommandLine& line) {
  const auto jobs = std::make_shared<std::vector<std::string>>();
  AddJobs(line.Add("why", "say why jobs wait, run or failed",
                   Examples("ringctl why j0001", "ringctl why j0001 j0002"),
                   [&line, jobs] { return Why(line.common(), *jobs); }),
          jobs.get());
}

// ringctl events JOB: what happened to a job, oldest first.

namespace {

StatusOr<ExitCode> Events(const Common& common, const std::string& job) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const std::string job_id, client.IdOf(job));
  RING_ASSIGN_OR_RETURN(const v1::ListEventsResponse events, client.ListEvents(job_id));
  Print(common.json() ? ToJson(job_id, events).dump(2) + "\n"
                      : RenderEvents(events, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

}  // namespace

void AddEvents(CommandLine& line) {
  const auto job = std::make_shared<std::string>();
  AddJob(line.Add("events", "list what happened to a job, oldest first",
                  Examples("ringctl events j0001"),
                  [&line, job] { return Events(line.common(), *job); }),
         job.get());
}

// ringctl cancel JOB...: asks for a stop at the next step boundary; `wait` sees it happen.

namespace {

StatusOr<ExitCode> Cancel(const Common& common, const std::vector<std::string>& jobs) {
  return AskEach(
      common, jobs, [&](Client& client, const std::string& job_id) -> StatusOr<JobAnswer> {
        RING_RETURN_IF_ERROR(client.Cancel(job_id));
        if (!common.json()) {
          Say(fmt::format(
              "{0} is being cancelled: if it runs it stops at its next step boundary, and "
              "`ringctl wait {0}` waits for that",
              job_id));
        }
        return JobAnswer{Json{{"job_id", job_id}}, ""};
      });
}

}  // namespace

void AddCancel(CommandLine& line) {
  const auto jobs = std::make_shared<std::vector<std::string>>();
  AddJobs(line.Add("cancel", "stop jobs at a step boundary and keep their checkpoints",
                   Examples("ringctl cancel j0001", "ringctl cancel j0001 j0002"),
                   [&line, jobs] { return Cancel(line.common(), *jobs); }),
          jobs.get());
}

// ringctl remove JOB...: jobs that ended, with all that is kept of them; their ids stay taken.

namespace {

StatusOr<ExitCode> Remove(const Common& common, const std::vector<std::string>& jobs) {
  return AskEach(common, jobs,
                 [&](Client& client, const std::string& job_id) -> StatusOr<JobAnswer> {
                   RING_RETURN_IF_ERROR(client.Remove(job_id));
                   if (!common.json()) Say(job_id + " is removed");
                   return JobAnswer{Json{{"job_id", job_id}}, ""};
                 });
}

}  // namespace

void AddRemove(CommandLine& line) {
  const auto jobs = std::make_shared<std::vector<std::string>>();
  AddJobs(line.Add("remove", "remove jobs that ended, with checkpoints, metrics and log lines",
                   Examples("ringctl remove j0001", "ringctl remove j0001 j0002"),
                   [&line, jobs] { return Remove(line.common(), *jobs); }),
          jobs.get());
}

}  // namespace ringmaster::cli
