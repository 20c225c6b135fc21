#include <algorithm>
#include <thread>

#include "cli/client.h"
#include "cli/commands/commands.h"
#include "cli/show/json.h"
#include "cli/show/names.h"
#include "cli/show/render.h"
#include "common/amount.h"

namespace ringmaster::cli {

// ringctl workers: every worker that is attached.

namespace {

StatusOr<ExitCode> Workers(const Common& common) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const v1::ListWorkersResponse workers, client.ListWorkers());
  Print(common.json() ? ToJson(workers).dump(2) + "\n"
                      : RenderWorkers(workers, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

}  // namespace

void AddWorkers(CommandLine& line) {
  line.Add("workers", "list the attached workers", Examples("ringctl workers"),
           [&line] { return Workers(line.common()); });
}

// ringctl drain WORKER: a worker leaves its job at a step boundary and gets no other one;
// `--resume` gives it jobs again.

namespace {

constexpr std::chrono::milliseconds kBetweenAnswers(100);
constexpr std::chrono::seconds kSaySomething(10);

struct DrainOptions {
  std::string worker;
  bool resume = false;
  std::string wait = "10m";
};

constexpr DurationRange kWait{std::chrono::milliseconds(0)};

// Null when it is not attached.
const v1::WorkerStatus* Find(const v1::ListWorkersResponse& workers, const std::string& name) {
  const auto found =
      std::find_if(workers.workers().begin(), workers.workers().end(),
                   [&](const v1::WorkerStatus& worker) { return worker.name() == name; });
  return found == workers.workers().end() ? nullptr : &*found;
}

std::string Doing(const v1::WorkerStatus& worker) {
  return worker.job_id().empty() ? worker.state()
                                 : fmt::format("{}, with {}", worker.state(), worker.job_id());
}

// Its last state: `DRAINED`, `GONE` once it is no longer attached, or `DRAINING` when the time was
// over. A coordinator that is away meanwhile is waited for, too.
StatusOr<std::string> WaitUntilFree(Client& client, const std::string& name,
                                    std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now(), end = begin + patience;
  Clock::time_point said = begin;
  for (;;) {
    const auto workers = client.ListWorkers();
    const bool away = workers.status().code() == absl::StatusCode::kUnavailable;
    if (!workers.ok() && (!away || Clock::now() >= end)) return workers.status();
    if (workers.ok()) {
      const v1::WorkerStatus* const worker = Find(*workers, name);
      if (worker == nullptr) return std::string("GONE");
      if (worker->state() == "DRAINED") return worker->state();
      if (worker->state() != "DRAINING") {
        return FailedPrecondition(
            "worker {} is {}: somebody resumed it, or the coordinator was started again; drain it "
            "again",
            name, Doing(*worker));
      }
      if (Clock::now() >= end) return worker->state();
      if (Clock::now() - said >= kSaySomething) {
        said = Clock::now();
        const std::chrono::duration<double> waited = said - begin;
        Say(fmt::format("{} is still {} after {}", name, Doing(*worker),
                        WholeSeconds(waited.count())));
      }
    }
    std::this_thread::sleep_until(std::min(end, Clock::now() + kBetweenAnswers));
  }
}

void Tell(const Common& common, const std::string& worker, const std::string& state,
          const std::string& job_id) {
  if (!common.json()) return;
  Print(Json{{"worker", worker}, {"state", state}, {"job_id", Known(!job_id.empty(), job_id)}}.dump(
            2) +
        "\n");
}

StatusOr<ExitCode> Drain(const Common& common, const DrainOptions& options) {
  RING_ASSIGN_OR_RETURN(const std::chrono::milliseconds patience,
                        ParseDuration(options.wait, "--wait", kWait));
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  v1::DrainWorkerRequest request;
  request.set_worker(options.worker);
  request.set_resume(options.resume);
  RING_ASSIGN_OR_RETURN(const v1::DrainWorkerResponse response, client.DrainWorker(request));
  if (options.resume) {
    Say(fmt::format("{} takes jobs again", options.worker));
    Tell(common, options.worker, "RESUMED", response.job_id());
    return ExitCode::kOk;
  }
  if (!response.job_id().empty()) {
    Say(fmt::format("{} leaves {} at its next step boundary", options.worker, response.job_id()));
  }
  std::string state = "DRAINING";
  if (patience.count() > 0) {
    RING_ASSIGN_OR_RETURN(state, WaitUntilFree(client, options.worker, patience));
  }
  Tell(common, options.worker, state, response.job_id());
  if (state == "GONE") Say(fmt::format("{} is no longer attached", options.worker));
  if (state == "DRAINED") {
    Say(fmt::format("{0} is drained; `ringctl drain {0} --resume` gives it jobs again",
                    options.worker));
  }
  if (state != "DRAINING" || patience.count() == 0) return ExitCode::kOk;
  Say(fmt::format("{} is still draining after {}; `ringctl workers` shows when it is done",
                  options.worker, options.wait));
  return ExitCode::kTimedOut;
}

}  // namespace

void AddDrain(CommandLine& line) {
  const auto options = std::make_shared<DrainOptions>();
  CLI::App* const command =
      line.Add("drain", "let a worker leave its job at a step boundary, and give it no other one",
               Examples("ringctl drain b", "ringctl drain b --resume"),
               [&line, options] { return Drain(line.common(), *options); });
  command->add_option("WORKER", options->worker, "name of the worker")->required();
  command->add_flag("--resume", options->resume, "it takes jobs again");
  command
      ->add_option("--wait", options->wait,
                   "how long to wait at most until it is free: 90s, 10m; 0 returns at once")
      ->type_name("DURATION")
      ->default_str(options->wait);
}

}  // namespace ringmaster::cli
