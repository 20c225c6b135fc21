// ringctl check [FILE]: whether a cluster is ready for a first job: asks the coordinator what it
// knows of itself and its workers, lets those that are free measure the links between them, and
// prints a verdict on each thing, with what to do. It changes nothing.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>

#include "cli/check.h"
#include "cli/child_process.h"
#include "cli/client.h"
#include "cli/cluster_files.h"
#include "cli/commands/commands.h"
#include "cli/job_spec.h"
#include "cli/show/json.h"
#include "cli/show/names.h"
#include "cli/show/terminal.h"
#include "common/amount.h"
#include "common/job/offline_job.h"

namespace ringmaster::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// What it prints.

struct Wording {
  const char* word;
  const char* json;
  Colour colour;
};

Wording WordingOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return {"ok", "OK", Colour::kGreen};
    case Verdict::kSkipped:
      return {"skipped", "SKIPPED", Colour::kPlain};
    case Verdict::kWarning:
      return {"warning", "WARNING", Colour::kYellow};
    case Verdict::kFailed:
      return {"failed", "FAILED", Colour::kRed};
  }
  return {"failed", "FAILED", Colour::kRed};
}

bool AllGood(const Findings& findings) {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& finding) { return finding.verdict == Verdict::kFailed; });
}

// A line for each, one below it for what to do, and how many there are of each verdict.
std::string RenderFindings(const Findings& findings, const Terminal& terminal) {
  std::string text;
  std::map<Verdict, size_t> counts;
  for (const Finding& finding : findings) {
    const Wording look = WordingOf(finding.verdict);
    ++counts[finding.verdict];
    const std::string about = finding.about.empty() ? "" : finding.about + ": ";
    text += fmt::format("{}{:{}} {:<12} {}{}\n", terminal.Paint(look.colour, look.word), "",
                        7 - std::strlen(look.word), finding.check, about, finding.found);
    if (!finding.remedy.empty()) text += fmt::format("{:21}to do: {}\n", "", finding.remedy);
  }
  return text + fmt::format("{} failed, {}, {} skipped, {} ok\n", counts[Verdict::kFailed],
                            Count(counts[Verdict::kWarning], "warning"), counts[Verdict::kSkipped],
                            counts[Verdict::kOk]);
}

Json FindingsToJson(const Findings& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"verdict", WordingOf(finding.verdict).json},
                    {"check", finding.check},
                    {"about", Known(!finding.about.empty(), finding.about)},
                    {"found", finding.found},
                    {"remedy", Known(!finding.remedy.empty(), finding.remedy)}});
  }
  return {{"ok", AllGood(findings)}, {"findings", list}};
}

struct CheckCommand {
  std::string file;
  std::vector<std::string> overrides;
  bool no_links = false;
  std::string limit = "5m";
};

int64_t WallMs() {
  return std::chrono::duration_cast<milliseconds>(Client::Clock::now().time_since_epoch()).count();
}

void AddAll(Findings more, Findings* findings) {
  std::move(more.begin(), more.end(), std::back_inserter(*findings));
}

// What only administrators may ask is left out for others, and that is said.
Finding NotAsked(const std::string& check, const Status& status) {
  return {Verdict::kSkipped, check, "", Message(status)};
}

bool IsForbidden(const Status& status) {
  return status.code() == absl::StatusCode::kPermissionDenied;
}

void CheckTheLinks(Client& client, const v1::ListWorkersResponse& workers, milliseconds limit,
                   Findings* findings) {
  v1::AllReduceRequest request;
  request.set_links_alone(true);
  for (const std::string& name : ChooseForLinks(workers, findings)) request.add_workers(name);
  if (request.workers().empty()) return;
  const StatusOr<v1::AllReduceReport> report = client.BenchAllReduce(request, limit);
  if (report.ok()) return AddAll(CheckLinks(*report), findings);
  // Somebody was quicker: a job, or another measurement.
  const bool busy = report.status().code() == absl::StatusCode::kFailedPrecondition ||
                    report.status().code() == absl::StatusCode::kResourceExhausted;
  if (busy || IsForbidden(report.status())) {
    findings->push_back(NotAsked("link", report.status()));
  } else {
    findings->push_back({Verdict::kFailed, "link", "", Message(report.status()),
                         "look at the workers' logs, and check again"});
  }
}

StatusOr<Json> PlanOf(const CheckCommand& options, const v1::ListWorkersResponse& workers) {
  constexpr char kProgram[] = "ringworker";
  constexpr int kDoesNotFit = 1;
  ClusterFiles files;
  RING_ASSIGN_OR_RETURN(const std::string profile, files.WriteClasses(workers));
  RING_ASSIGN_OR_RETURN(const std::string folder, FolderOf({kProgram}));
  std::vector<std::string> arguments = {folder + "/" + kProgram, "plan", "--json",
                                        "--profile=" + profile};
  for (const std::string& override : options.overrides) arguments.push_back("--set=" + override);
  arguments.push_back(options.file);
  RING_ASSIGN_OR_RETURN(const std::string text, OutputOf(arguments, kDoesNotFit));
  Json plan = Json::parse(text, nullptr, false);
  if (plan.is_discarded()) return Internal("{} printed a plan that is no JSON", kProgram);
  return plan;
}

// Bytes of a checkpoint of the job, where there is one and it can be planned.
std::optional<uint64_t> CheckTheJob(const CheckCommand& options,
                                    const v1::ListWorkersResponse& workers, Findings* findings) {
  if (options.file.empty() || workers.workers().empty()) return std::nullopt;
  const auto has_script = [&] {
    const StatusOr<v1::JobSpec> spec = job::ReadJob(options.file, options.overrides);
    return spec.ok() && spec->has_script();
  };
  const bool stdin_alone = options.file == "-";  // can be read once
  if (IsScript(options.file) || (!stdin_alone && has_script())) {
    findings->push_back({Verdict::kSkipped, "job", options.file,
                         "what a script takes is known when a worker has run it to its attach"});
    return std::nullopt;
  }
  const StatusOr<Json> plan = PlanOf(options, workers);
  if (!plan.ok()) {
    findings->push_back({Verdict::kFailed, "job", options.file, Message(plan.status()),
                         "`ringctl plan FILE --cluster` says more"});
    return std::nullopt;
  }
  AddAll(CheckJobPlan(*plan), findings);
  findings->push_back({Verdict::kSkipped, "data", options.file,
                       "the workers look at the dataset when the job starts, before any step; who "
                       "lacks it fetches it"});
  return StateBytes(*plan);
}

Status CheckAll(const Common& common, const CheckCommand& options, milliseconds limit,
                Findings* findings) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(v1::ListWorkersResponse workers, client.ListWorkers());
  // The first answer had a connection to make; the second one tells the time.
  const auto again = steady_clock::now();
  RING_ASSIGN_OR_RETURN(workers, client.ListWorkers());
  const auto trip = std::chrono::duration_cast<milliseconds>(steady_clock::now() - again);
  AddAll(CheckCoordinator(common.coordinator, workers.coordinator(), WallMs(), trip), findings);
  RING_ASSIGN_OR_RETURN(const v1::WhoAmIResponse who, client.WhoAmI());
  findings->push_back(CheckOwnCertificate(who, WallMs()));
  std::optional<v1::ListIdentitiesResponse> identities;
  StatusOr<v1::ListIdentitiesResponse> listed = client.ListIdentities();
  if (listed.ok()) {
    identities = *std::move(listed);
  } else if (IsForbidden(listed.status())) {
    findings->push_back(NotAsked("certificate", listed.status()));
  } else {
    return listed.status();
  }
  AddAll(CheckWorkers(workers, identities), findings);
  const std::optional<uint64_t> state = CheckTheJob(options, workers, findings);
  AddAll(CheckDisks(workers, state), findings);
  if (!options.no_links && !workers.workers().empty()) {
    CheckTheLinks(client, workers, limit, findings);
  }
  return absl::OkStatus();
}

StatusOr<ExitCode> Check(const Common& common, const CheckCommand& options) {
  RING_ASSIGN_OR_RETURN(const milliseconds limit, ParseDuration(options.limit, "--limit"));
  Findings findings;
  const Status status = CheckAll(common, options, limit, &findings);
  if (!status.ok()) {
    findings.push_back({Verdict::kFailed, "coordinator", common.coordinator, Message(status)});
  }
  Print(common.json() ? FindingsToJson(findings).dump(2) + "\n"
                      : RenderFindings(findings, Terminal::Of(stdout)));
  return AllGood(findings) ? ExitCode::kOk : ExitCode::kOther;
}

}  // namespace

void AddCheck(CommandLine& line) {
  const auto options = std::make_shared<CheckCommand>();
  CLI::App* const command = line.Add(
      "check", "say whether the cluster is ready for a job, and what to do where it is not",
      Examples("ringctl check", "ringctl check job.yaml", "ringctl check --no-links -o json"),
      [&line, options] { return Check(line.common(), *options); });
  command->add_option("FILE", options->file,
                      "a job file: also whether that job fits, and the disks its checkpoints");
  command
      ->add_option("--set", options->overrides,
                   "replace a value of the file, e.g. batch=512; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->take_all();
  command->add_flag("--no-links", options->no_links,
                    "measure no links: nobody's network is loaded");
  command->add_option("--limit", options->limit, "how long to wait for the links at most: 90s, 5m")
      ->type_name("DURATION")
      ->default_str(options->limit);
}

}  // namespace ringmaster::cli
