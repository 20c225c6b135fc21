#include "coordinator/logic/run/failure.h"

#include <algorithm>
#include <array>

namespace ringmaster::coordinator {
namespace {

struct Row {
  Cause cause;
  v1::FailureCode code;  // by which a worker says it; UNSPECIFIED: none does
  const char* word;
  const char* advice;  // {job}, {worker}, {host}, {again} and {anew} are replaced
};

constexpr std::array kTable = {
    Row{Cause::kWorkerFailed, v1::FAILURE_CODE_UNSPECIFIED, "WORKER_FAILED",
        "`ringctl logs {job} --worker {worker}` shows what led to it; remove the cause that the "
        "reason names, then {again}."},
    Row{Cause::kNotFinite, v1::FAILURE_CODE_NOT_FINITE, "NOT_FINITE",
        "Take a smaller learning rate, or look at the data of that step, and {anew}."},
    Row{Cause::kDataset, v1::FAILURE_CODE_DATASET, "DATASET",
        "Repair the dataset under the data root of {worker} on {host} as the reason says, then "
        "{again}."},
    Row{Cause::kDatasetDiffers, v1::FAILURE_CODE_DATASET_DIFFERS, "DATASET_DIFFERS",
        "Give every worker the same copy of the dataset, byte for byte, then {again}."},
    Row{Cause::kInit, v1::FAILURE_CODE_INIT, "INIT",
        "Give every worker the same copy of init.file under its data root, or name a job in "
        "init.job that has a checkpoint; then {again}."},
    Row{Cause::kInvalidJob, v1::FAILURE_CODE_INVALID_JOB, "INVALID_JOB",
        "Change the job file as the reason says and submit it again."},
    Row{Cause::kMemory, v1::FAILURE_CODE_MEMORY, "MEMORY",
        "Start {worker} with a larger --memory-per-core, then {again}; or submit it with the "
        "largest "
        "batch that the reason names, with more shards or with memory.rematerialize."},
    Row{Cause::kKnownShardDiffers, v1::FAILURE_CODE_UNSPECIFIED, "KNOWN_SHARD_DIFFERS",
        "Install the same release on both workers and compare them in `ringctl workers`; if they "
        "are equal there, one machine computes wrong bits: `ringctl drain` leaves it out; then "
        "{again}."},
    Row{Cause::kStateDiffers, v1::FAILURE_CODE_STATE_DIFFERS, "STATE_DIFFERS",
        "One of the workers computed or kept wrong bits: test the memory of both hosts, leave the "
        "broken one out (`ringctl drain`), then {again}."},
    Row{Cause::kScript, v1::FAILURE_CODE_SCRIPT, "SCRIPT",
        "Mend the script, or what the workers run it with, as the reason says, and submit it "
        "again; `ringctl logs {job}` has what it printed."},
    Row{Cause::kProtocolViolation, v1::FAILURE_CODE_UNSPECIFIED, "PROTOCOL_VIOLATION",
        "Install the same release on the coordinator and on {worker}, then {again}."},
    Row{Cause::kCheckpointDiffers, v1::FAILURE_CODE_UNSPECIFIED, "CHECKPOINT_DIFFERS",
        "What arrived is not the state that was trained: test the memory and the disks of the "
        "hosts, then {again}."},
    Row{Cause::kNoCheckpoint, v1::FAILURE_CODE_UNSPECIFIED, "NO_CHECKPOINT",
        "`ringctl checkpoint verify` of the job that it resumes or continues shows what is wrong "
        "with each of its checkpoints; what resumes can begin again with `ringctl submit --like "
        "{job}`, what continues with the step of another checkpoint: continue.step."},
};

// What loses least: nothing is computed twice that a checkpoint has.
std::string Again(const Scene& scene) {
  if (scene.kept_step == 0) return "submit the job again";
  return fmt::format("`ringctl submit --resume {}` goes on from step {}", scene.job_id,
                     scene.kept_step);
}

// Likewise where the same steps would fail again: with other settings it is another job.
std::string Anew(const Scene& scene) {
  if (scene.kept_step == 0 || scene.of_script) return "submit the job again";
  return fmt::format(
      "submit the job with `--set continue={}`, which goes on from a checkpoint of it (up to step "
      "{}), or again from its first step",
      scene.job_id, scene.kept_step);
}

const Row* Find(Cause cause) {
  const auto row = std::find_if(kTable.begin(), kTable.end(),
                                [cause](const Row& candidate) { return candidate.cause == cause; });
  return row == kTable.end() ? nullptr : &*row;
}

}  // namespace

Fault FaultOf(Cause cause, const Status& status, const std::string& worker) {
  if (status.ok()) return {};
  return {cause, Message(status), worker, 0};
}

std::string WordOf(Cause cause) {
  const Row* row = Find(cause);
  return row == nullptr ? "" : row->word;
}

Cause CauseOfCode(v1::FailureCode code) {
  const auto row = std::ranges::find(kTable, code, &Row::code);
  const bool known = code != v1::FAILURE_CODE_UNSPECIFIED && row != kTable.end();
  return known ? row->cause : Cause::kWorkerFailed;
}

v1::Failure MakeFailure(const Fault& fault, const Scene& scene) {
  v1::Failure failure;
  failure.set_word(WordOf(fault.cause));
  failure.set_worker(fault.worker);
  failure.set_host(scene.host);
  failure.set_step(scene.step);
  failure.set_phase(scene.phase);
  const Row* row = Find(fault.cause);
  const std::string worker = fault.worker.empty() ? "the worker" : fault.worker;
  const std::string host = scene.host.empty() ? "its host" : "host " + scene.host;
  if (row != nullptr) {
    failure.set_advice(fmt::format(fmt::runtime(row->advice), fmt::arg("job", scene.job_id),
                                   fmt::arg("worker", worker), fmt::arg("host", host),
                                   fmt::arg("again", Again(scene)), fmt::arg("anew", Anew(scene))));
  }
  return failure;
}

std::string Called(const std::string& worker, const std::string& host) {
  return host.empty() ? "worker " + worker : fmt::format("worker {} on host {}", worker, host);
}

std::string At(uint64_t step, const std::string& phase) {
  return phase.empty() ? fmt::format("at step {}", step)
                       : fmt::format("at step {} in {}", step, phase);
}

}  // namespace ringmaster::coordinator
