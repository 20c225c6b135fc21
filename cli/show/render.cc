#include "cli/show/render.h"

#include <absl/strings/ascii.h>
#include <absl/strings/str_join.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "cli/complaint.h"
#include "cli/show/epoch.h"
#include "cli/show/names.h"
#include "cli/show/render_watch.h"
#include "cli/show/terminal.h"
#include "common/amount.h"
#include "common/job/metrics.h"

namespace ringmaster::cli {
namespace {

// The `key: value` lines of one job's status, in the order in which they are added.
class JobLines {
 public:
  // An empty key goes on with the line before it.
  void Add(bool known, const std::string& key, const std::string& value) {
    const std::string name = key.empty() ? "" : key + ":";
    if (known) text_ += fmt::format("{:<20} {}\n", name, value);
  }
  void AddText(const std::string& lines) { text_ += lines; }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// `lost c; joined d, e`, each part where it is.
std::string Members(const v1::Regroup& regroup) {
  std::string text;
  if (regroup.lost_size() > 0) text += "; lost " + absl::StrJoin(regroup.lost(), ", ");
  if (regroup.joined_size() > 0) text += "; joined " + absl::StrJoin(regroup.joined(), ", ");
  return text;
}

std::string Describe(const v1::Regroup& regroup) {
  std::string text = fmt::format("{}.{} at step {}, {}: {}{}", regroup.generation().term(),
                                 regroup.generation().counter(), regroup.start_step(),
                                 DateAndTime(regroup.noticed_unix_ms()),
                                 Printable(regroup.reason()), Members(regroup));
  if (regroup.rewound()) text += fmt::format("; back from step {}", regroup.rewound_from());
  return text;
}

std::string DescribeCost(const v1::Regroup& regroup) {
  std::string text =
      fmt::format("{} kept, {} computed again; fenced in {}", Count(regroup.shards_kept(), "shard"),
                  regroup.shards_recomputed(), Seconds(regroup.fence_ms() / 1e3));
  if (regroup.form_ms() > 0) {
    text += fmt::format(", computing {} later", Seconds(regroup.form_ms() / 1e3));
  }
  return text;
}

// The first names of tensors, with how many there are.
std::string Listed(uint32_t count, const google::protobuf::RepeatedPtrField<std::string>& names) {
  constexpr int kMost = 4;
  std::string text;
  for (int i = 0; i < std::min(kMost, names.size()); ++i) {
    text += (i == 0 ? ": " : ", ") + Printable(names.Get(i));
  }
  return fmt::format("{}{}{}", count, text, count > kMost ? ", ..." : "");
}

void AddInit(const v1::InitReport& report, JobLines* lines) {
  lines->Add(
      true, "begins with",
      fmt::format("{} of {}", Count(report.matched(), "tensor"), Printable(report.source())));
  lines->Add(report.fresh() > 0, "drawn anew", Listed(report.fresh(), report.fresh_names()));
  lines->Add(report.unused() > 0, "unused there", Listed(report.unused(), report.unused_names()));
}

// What it began with, and which job and checkpoint it goes on from.
void AddOrigin(const v1::JobStatus& status, JobLines* lines) {
  lines->Add(!status.resumes_job().empty(), "resumes", status.resumes_job());
  lines->Add(!status.like_job().empty(), "like", status.like_job());
  lines->Add(status.has_continues(), "continues",
             fmt::format("step {} of {}", status.continues().step(), status.continues().job_id()));
  if (status.has_init()) AddInit(status.init(), lines);
  const v1::CheckpointRef& from = status.resumed_from();
  lines->Add(status.has_resumed_from(), "resumed from",
             fmt::format("step {} in {}", from.step(), from.path()));
}

// `from step 0: cpu-avx2-04bd77e1 2 shards, cpu-avx512_core-9a31f02c 6 shards`, of a job that mixes
// classes.
void AddClassMaps(const v1::JobStatus& status, JobLines* lines) {
  const bool mixed = status.class_maps_size() > 1 ||
                     (status.class_maps_size() == 1 && status.class_maps(0).classes_size() > 1);
  if (!mixed) return;
  const char* key = "class map";
  for (const v1::ClassMap& map : status.class_maps()) {
    std::string text = fmt::format("from step {}:", map.step());
    const char* separator = " ";
    for (const v1::MappedClass& each : map.classes()) {
      text += fmt::format("{}{} {} shard{}", separator, Printable(each.class_()), each.shards(),
                          each.shards() == 1 ? "" : "s");
      separator = ", ";
    }
    lines->Add(true, std::exchange(key, ""), std::move(text));
  }
}

// Who makes it slower, and who was left out for it.
void AddSlow(const v1::JobStatus& status, JobLines* lines) {
  std::vector<std::string> slow;
  double percent = 0;
  for (const v1::JobWorker& worker : status.workers()) {
    if (!(worker.faster_without() > 0)) continue;
    slow.push_back(Printable(worker.name()));
    percent = worker.faster_without();
  }
  lines->Add(!slow.empty(), "faster without",
             fmt::format("{}: {:.0f}%", absl::StrJoin(slow, ", "), percent));
  const char* key = "left out";
  for (const v1::JobWorker& worker : status.left_out()) {
    lines->Add(true, std::exchange(key, ""),
               fmt::format("{}, which takes {} for each of its shards", Printable(worker.name()),
                           Seconds(worker.shard_seconds())));
  }
}

// The newest change of the ring, how many there were, and whom the others wait for.
void AddRegroups(const v1::JobStatus& status, JobLines* lines) {
  lines->Add(status.regroup_count() > 0, "regroups", fmt::format("{}", status.regroup_count()));
  if (status.regroups_size() > 0) {
    const v1::Regroup& newest = *status.regroups().rbegin();
    lines->Add(true, "newest regroup", Describe(newest));
    lines->Add(true, "", DescribeCost(newest));
  }
  lines->Add(status.state_faults() > 0, "state faults",
             fmt::format("{}: a worker's state was not what it wrote, and the job went back; the "
                         "next one ends it",
                         status.state_faults()));
  lines->Add(status.shards_recomputed() > 0, "shards recomputed",
             fmt::format("{}", status.shards_recomputed()));
  lines->Add(status.has_straggler(), "straggler", Printable(status.straggler().text()));
  lines->Add(status.has_input_wait(), "input", Printable(status.input_wait().text()));
  AddSlow(status, lines);
}

}  // namespace

// RenderStatus and RenderEnd: everything about one job.

namespace {

void AddIdentity(const v1::JobStatus& status, const Terminal& terminal, JobLines* lines) {
  lines->Add(true, "job", status.job_id());
  lines->Add(true, "name", status.name());
  lines->Add(true, "state", terminal.Paint(ColourOf(status.state()), StateName(status.state())));
  lines->Add(!status.reason().empty(), "reason", FirstLine(status.reason()));
  lines->AddText(OtherLines(status.reason()));
  AddOrigin(status, lines);
}

std::string NameOf(v1::SampleSplit split, const std::string& metric) {
  const bool train = split == v1::SAMPLE_SPLIT_TRAIN;
  return (train ? "" : job::NameOf(split) + " ") + Printable(metric);
}

// `train.py --layers=6`
std::string TitleOf(const v1::Script& script) {
  std::string title = Printable(script.file());
  for (const std::string& argument : script.args()) title += ' ' + Printable(argument);
  return title;
}

void AddTraining(const v1::JobStatus& status, JobLines* lines) {
  lines->Add(status.spec().has_script(), "script", TitleOf(status.spec().script()));
  lines->Add(!status.model_sha256().empty(), "model", status.model_sha256().substr(0, 12));
  lines->Add(true, "step", StepOfTotal(status));
  const bool skipped = UpdatesKnown(status) && SkippedSteps(status) > 0;
  lines->Add(skipped, "skipped steps", fmt::format("{}", SkippedSteps(status)));
  lines->Add(true, "epoch", fmt::format("{}", status.epoch()));
  for (const v1::Metric& metric : status.metrics()) {
    lines->Add(true, NameOf(metric.split(), metric.name()), fmt::format("{:.6f}", metric.value()));
  }
  lines->Add(status.learning_rate() > 0, "learning rate",
             fmt::format("{:.1e}", status.learning_rate()));
  lines->Add(status.has_loss_scale(), "loss scale", fmt::format("{:g}", status.loss_scale()));
}

void AddFolds(const v1::JobStatus& status, JobLines* lines) {
  lines->Add(!status.fold_of().empty(), "fold of", status.fold_of());
  for (const v1::Fold& fold : status.folds()) {
    lines->Add(
        true, "fold",
        fmt::format("{} {} at step {}", fold.job_id(), StateName(fold.state()), fold.step()));
  }
  for (const v1::MetricSpread& each : status.spread()) {
    lines->Add(
        true, NameOf(each.split(), each.name()),
        fmt::format("{:.6f} +- {:.6f} over {} folds", each.mean(), each.deviation(), each.count()));
  }
}

void AddTimes(const v1::JobStatus& status, JobLines* lines) {
  lines->Add(status.samples_per_second() > 0, "speed",
             fmt::format("{:.0f} samples/s", status.samples_per_second()));
  const auto left = JobSecondsLeft(status);
  lines->Add(left.has_value(), "ETA", WholeSeconds(left.value_or(0)));
  lines->Add(status.submitted_unix_ms() > 0, "submitted", DateAndTime(status.submitted_unix_ms()));
  lines->Add(status.started_unix_ms() > 0, "started", DateAndTime(status.started_unix_ms()));
  lines->Add(status.last_step_unix_ms() > 0, "last step", DateAndTime(status.last_step_unix_ms()));
  lines->Add(status.finished_unix_ms() > 0, "finished", DateAndTime(status.finished_unix_ms()));
}

void AddCheckpoint(const char* key, const v1::CheckpointRef& checkpoint, JobLines* lines) {
  lines->Add(
      true, key,
      fmt::format("step {} in {}{}", checkpoint.step(), checkpoint.path(),
                  checkpoint.has_metric() ? fmt::format(" ({:.4f})", checkpoint.metric()) : ""));
  lines->Add(true, "sha256", checkpoint.sha256());
}

void AddState(const v1::JobStatus& status, JobLines* lines) {
  lines->Add(!GenerationName(status).empty(), "generation", GenerationName(status));
  AddClassMaps(status, lines);
  AddRegroups(status, lines);
  if (status.has_checkpoint()) AddCheckpoint("checkpoint", status.checkpoint(), lines);
  if (status.has_best_checkpoint()) {
    AddCheckpoint("best checkpoint", status.best_checkpoint(), lines);
  }
  lines->Add(status.log_lines_lost() > 0, "log lines lost",
             fmt::format("{}", status.log_lines_lost()));
}

bool StartIsOver(const v1::JobStatus& status) {
  const auto& phases = status.start_phases();
  return std::all_of(phases.begin(), phases.end(),
                     [](const v1::StartPhase& phase) { return phase.done(); });
}

std::string PhaseTable(const v1::JobStatus& status, const Terminal& terminal) {
  Table table({"START PHASE", "TIME", "", "LONGEST ON"});
  for (const v1::StartPhase& phase : status.start_phases()) {
    table.Add({phase.name(), Seconds(phase.seconds()), std::string(phase.done() ? "done" : "now"),
               phase.worker()});
  }
  return table.Print(terminal);
}

std::string WorkerTable(const v1::JobStatus& status, const Terminal& terminal) {
  Table table({"WORKER", "HOST", "SHARDS", "PHASE", "INPUT", "COMPUTE", "RING-WAIT",
               "RING-TRANSFER", "UPDATE", "STEP", "RING BYTES"});
  const auto text = [](const std::string& value) { return value.empty() ? "-" : value; };
  for (const v1::JobWorker& worker : status.workers()) {
    const v1::StepTimes& times = worker.step_times();
    const auto ms = [&](double seconds) {
      return worker.has_step_times() ? fmt::format("{:.1f}", 1000 * seconds) : std::string("-");
    };
    table.Add({worker.name(), text(worker.host()), text(Ranges(worker.shards())),
               text(worker.phase()), ms(times.input()), ms(times.compute()), ms(times.ring_wait()),
               ms(times.ring_transfer()), ms(times.update()), ms(times.total()),
               FormatBytes(worker.ring_bytes())});
  }
  const bool measured =
      std::any_of(status.workers().begin(), status.workers().end(),
                  [](const v1::JobWorker& worker) { return worker.has_step_times(); });
  return table.Print(terminal) +
         (measured ? "INPUT to STEP: ms of a step, means of the last steps\n" : "");
}

}  // namespace

std::string RenderStatus(const v1::JobStatus& status, const Terminal& terminal) {
  JobLines lines;
  AddIdentity(status, terminal, &lines);
  AddTraining(status, &lines);
  AddFolds(status, &lines);
  AddTimes(status, &lines);
  AddState(status, &lines);
  const bool started = StartIsOver(status) && status.start_phases_size() > 0;
  lines.Add(started, "start", StartedLine(status));
  std::string text = lines.text();
  if (status.has_failure()) text += "\n" + RenderFailure(status.failure());
  if (!StartIsOver(status)) text += "\n" + PhaseTable(status, terminal);
  if (status.workers_size() > 0) text += "\n" + WorkerTable(status, terminal);
  return text;
}

std::string RenderEnd(const v1::JobStatus& status, const Terminal& terminal) {
  std::string text;
  if (status.has_failure()) {
    text += OtherLines(status.reason()) + RenderFailure(status.failure());
    text += fmt::format("`ringctl why {0}` says more, `ringctl logs {0}` shows its workers' logs\n",
                        status.job_id());
  }
  const auto add = [&](const char* which, const v1::CheckpointRef& checkpoint) {
    text += fmt::format("{} of step {}: {}\n{}: {}\n", which, checkpoint.step(), checkpoint.path(),
                        terminal.Paint(Colour::kBold, "sha256"), checkpoint.sha256());
  };
  if (status.has_checkpoint()) add("checkpoint", status.checkpoint());
  const bool other = status.best_checkpoint().step() != status.checkpoint().step();
  if (status.has_best_checkpoint() && other) add("best checkpoint", status.best_checkpoint());
  return text;
}

// RenderWhy and RenderFailure: reasons, and what to do about them.

namespace {

std::string Line(const char* key, const std::string& value) {
  return value.empty() ? "" : fmt::format("{:<11} {}\n", key, Printable(value));
}

}  // namespace

std::string RenderFailure(const v1::Failure& failure) {
  return Line("worker:", failure.worker()) + Line("host:", failure.host()) +
         Line("step:", fmt::format("{}", failure.step())) + Line("phase:", failure.phase()) +
         Line("what to do:", failure.advice());
}

std::string RenderWhy(const v1::WhyResponse& why, const Terminal& terminal) {
  std::string text = terminal.Paint(ColourOf(why.state()), StateName(why.state()));
  text += why.reason().empty() ? "\n" : ": " + FirstLine(why.reason()) + "\n";
  text += OtherLines(why.reason());
  if (why.has_failure()) text += RenderFailure(why.failure());
  for (const std::string& advice : why.advice()) {
    if (advice != why.failure().advice())
      text += Line(why.has_failure() ? "what to do:" : "what helps:", advice);
  }
  for (const std::string& line : why.history()) text += "  " + FirstLine(line) + "\n";
  return text;
}

// RenderJobs, RenderCheckpoints, RenderChecked: one line an entry.

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
