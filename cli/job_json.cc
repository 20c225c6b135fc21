// ToJson of a job and of what is part of it.
#include <fmt/format.h>

#include <cmath>

#include "cli/json.h"
#include "cli/names.h"
#include "common/job/defaults.h"

namespace ringmaster::cli {
namespace {

Json TimeOrNull(int64_t unix_ms) { return Known(unix_ms != 0, unix_ms); }
Json TextOrNull(const std::string& text) { return Known(!text.empty(), text); }

// Of what a peer says: a number that is not finite, or is beyond all times, is no time.
Json WholeMs(double ms) {
  constexpr double kLongest = 1e15;
  return Known(std::abs(ms) < kLongest, std::llround(std::abs(ms) < kLongest ? ms : 0));
}
Json MsOf(double seconds) { return WholeMs(1e3 * seconds); }

Json StepOf(const v1::StepTimes& times) {
  return {{"input_ms", MsOf(times.input())},    {"compute_ms", MsOf(times.compute())},
          {"wait_ms", MsOf(times.ring_wait())}, {"transfer_ms", MsOf(times.ring_transfer())},
          {"update_ms", MsOf(times.update())},  {"total_ms", MsOf(times.total())}};
}

Json WorkersOf(const v1::JobStatus& status) {
  Json workers = Json::array();
  for (const v1::JobWorker& worker : status.workers()) {
    Json shards = Json::array();
    for (const uint32_t shard : worker.shards()) shards.push_back(shard);
    workers.push_back(
        {{"name", worker.name()},
         {"shards", shards},
         {"ring_bytes", worker.ring_bytes()},
         {"host", TextOrNull(worker.host())},
         {"phase", TextOrNull(worker.phase())},
         {"applied", worker.applied()},
         {"step_times", worker.has_step_times() ? StepOf(worker.step_times()) : Json(nullptr)}});
  }
  return workers;
}

Json StartPhasesOf(const v1::JobStatus& status) {
  Json phases = Json::array();
  for (const v1::StartPhase& phase : status.start_phases()) {
    phases.push_back({{"name", phase.name()},
                      {"elapsed_ms", MsOf(phase.seconds())},
                      {"done", phase.done()},
                      {"worker", TextOrNull(phase.worker())}});
  }
  return phases;
}

Json RegroupsOf(const v1::JobStatus& status) {
  Json regroups = Json::array();
  for (const v1::Regroup& regroup : status.regroups()) regroups.push_back(ToJson(regroup));
  return regroups;
}

template <typename Message>
Json OrNull(bool known, const Message& message) {
  return known ? ToJson(message) : Json(nullptr);
}

}  // namespace

Json ToJson(const v1::CheckpointRef& checkpoint) {
  return {{"path", checkpoint.path()},
          {"step", checkpoint.step()},
          {"sha256", checkpoint.sha256()},
          {"metric", Known(checkpoint.has_metric(), checkpoint.metric())}};
}

Json ToJson(const v1::Failure& failure) {
  return {{"word", failure.word()},
          {"worker", TextOrNull(failure.worker())},
          {"host", TextOrNull(failure.host())},
          {"step", failure.step()},
          {"phase", TextOrNull(failure.phase())},
          {"advice", failure.advice()}};
}

Json ToJson(const v1::Regroup& regroup) {
  const v1::Generation& generation = regroup.generation();
  return {{"generation", fmt::format("{}.{}", generation.term(), generation.counter())},
          {"start_step", regroup.start_step()},
          {"reason", regroup.reason()},
          {"lost", ToJson(regroup.lost())},
          {"joined", ToJson(regroup.joined())},
          {"shards_kept", regroup.shards_kept()},
          {"shards_recomputed", regroup.shards_recomputed()},
          {"noticed_unix_ms", regroup.noticed_unix_ms()},
          {"fence_ms", WholeMs(regroup.fence_ms())},
          {"form_ms", regroup.form_ms() > 0 ? WholeMs(regroup.form_ms()) : Json(nullptr)},
          {"rewound", regroup.rewound()},
          {"rewound_from", Known(regroup.rewound(), regroup.rewound_from())}};
}

Json ToJson(const v1::Straggler& straggler) {
  return {{"worker", straggler.worker()},
          {"cause", straggler.cause()},
          {"wait_ms", MsOf(straggler.seconds())},
          {"text", straggler.text()}};
}

Json ToJson(const v1::JobStatus& status) {
  const bool measured = status.step() > 0;
  const bool counted = UpdatesKnown(status);
  const std::string generation = GenerationName(status);
  return {{"job_id", status.job_id()},
          {"name", status.name()},
          {"state", StateName(status.state())},
          {"reason", status.reason()},
          {"step", status.step()},
          {"total_steps", Known(status.total_steps() > 0, status.total_steps())},
          {"epoch", status.epoch()},
          {"loss", Known(measured, status.loss())},
          {"accuracy", Known(measured, status.accuracy())},
          {"test_accuracy", Known(status.has_test_accuracy(), status.test_accuracy())},
          {"samples_per_second", status.samples_per_second()},
          {"generation", Known(!generation.empty(), generation)},
          {"workers", WorkersOf(status)},
          {"checkpoint", OrNull(status.has_checkpoint(), status.checkpoint())},
          {"submitted_unix_ms", TimeOrNull(status.submitted_unix_ms())},
          {"started_unix_ms", TimeOrNull(status.started_unix_ms())},
          {"finished_unix_ms", TimeOrNull(status.finished_unix_ms())},
          {"steps_per_epoch", Known(status.steps_per_epoch() > 0, status.steps_per_epoch())},
          {"updates", Known(counted, status.updates())},
          {"skipped_steps", Known(counted, SkippedSteps(status))},
          {"loss_scale", Known(status.has_loss_scale(), status.loss_scale())},
          {"learning_rate", Known(status.learning_rate() > 0, status.learning_rate())},
          {"test_loss", Known(status.has_test_loss(), status.test_loss())},
          {"validation_accuracy",
           Known(status.has_validation_accuracy(), status.validation_accuracy())},
          {"validation_loss", Known(status.has_validation_loss(), status.validation_loss())},
          {"last_step_unix_ms", TimeOrNull(status.last_step_unix_ms())},
          {"log_lines_lost", status.log_lines_lost()},
          {"best_checkpoint", OrNull(status.has_best_checkpoint(), status.best_checkpoint())},
          {"start_phases", StartPhasesOf(status)},
          {"failure", OrNull(status.has_failure(), status.failure())},
          {"regroup_count", status.regroup_count()},
          {"regroups", RegroupsOf(status)},
          {"shards_recomputed", status.shards_recomputed()},
          {"resumed_from", OrNull(status.has_resumed_from(), status.resumed_from())},
          {"resumes_job", TextOrNull(status.resumes_job())},
          {"like_job", TextOrNull(status.like_job())},
          {"straggler", OrNull(status.has_straggler(), status.straggler())},
          {"spec", ToJson(job::WithDefaults(status.spec()))}};
}

}  // namespace ringmaster::cli
