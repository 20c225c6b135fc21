#include "coordinator/logic/run/failure.h"

#include <algorithm>
#include <array>

namespace ringmaster::coordinator {
namespace {

struct Row {
  Cause cause;
  v1::FailureCode code;  // by which a worker says it; UNSPECIFIED: none does
  const char* word;
  const char* advice;  // {job}, {worker} and {host} are replaced
};

constexpr std::array kTable = {
    Row{Cause::kWorkerFailed, v1::FAILURE_CODE_UNSPECIFIED, "WORKER_FAILED",
        "`ringctl logs {job} --worker {worker}` shows what led to it; remove the cause that the "
        "reason names, then submit the job again."},
    Row{Cause::kNotFinite, v1::FAILURE_CODE_NOT_FINITE, "NOT_FINITE",
        "Take a smaller learning rate, or look at the data of that step, and submit the job "
        "again."},
    Row{Cause::kDataset, v1::FAILURE_CODE_DATASET, "DATASET",
        "Repair the dataset under the data root of {worker} on {host} as the reason says, then "
        "submit the job again."},
    Row{Cause::kDatasetDiffers, v1::FAILURE_CODE_DATASET_DIFFERS, "DATASET_DIFFERS",
        "Give every worker the same copy of the dataset, byte for byte, then submit the job "
        "again."},
    Row{Cause::kInit, v1::FAILURE_CODE_INIT, "INIT",
        "Give every worker the same copy of init.file under its data root, or name a job in "
        "init.job that has a checkpoint; then submit the job again."},
    Row{Cause::kInvalidJob, v1::FAILURE_CODE_INVALID_JOB, "INVALID_JOB",
        "Change the job file as the reason says and submit it again."},
    Row{Cause::kMemory, v1::FAILURE_CODE_MEMORY, "MEMORY",
        "Take a smaller batch, more shards or a smaller model, or start {worker} with a larger "
        "--memory-per-core; then submit the job again."},
    Row{Cause::kKnownShardDiffers, v1::FAILURE_CODE_UNSPECIFIED, "KNOWN_SHARD_DIFFERS",
        "Install the same release on both workers and compare them in `ringctl workers`; if they "
        "are equal there, one machine computes wrong bits and should be left out."},
    Row{Cause::kStateDiffers, v1::FAILURE_CODE_STATE_DIFFERS, "STATE_DIFFERS",
        "One of the workers computed or kept wrong bits: test the memory of both hosts, leave the "
        "broken one out, then submit the job again."},
    Row{Cause::kProtocolViolation, v1::FAILURE_CODE_UNSPECIFIED, "PROTOCOL_VIOLATION",
        "Install the same release on the coordinator and on {worker}, then submit the job again."},
    Row{Cause::kCheckpointDiffers, v1::FAILURE_CODE_UNSPECIFIED, "CHECKPOINT_DIFFERS",
        "What arrived is not the state that was trained: test the memory and the disks of the "
        "hosts, then submit the job again."},
    Row{Cause::kNoCheckpoint, v1::FAILURE_CODE_UNSPECIFIED, "NO_CHECKPOINT",
        "`ringctl checkpoint verify` of the job that it resumes or continues shows what is wrong "
        "with each of its checkpoints; what resumes can begin again with `ringctl submit --like "
        "{job}`, what continues with the step of another checkpoint: continue.step."},
};

const Row* Find(Cause cause) {
  const auto row = std::find_if(kTable.begin(), kTable.end(),
                                [cause](const Row& candidate) { return candidate.cause == cause; });
  return row == kTable.end() ? nullptr : &*row;
}

std::string Kept(const Scene& scene) {
  if (scene.kept_step == 0) return "";
  return fmt::format(" Checkpoints up to step {} are kept: `ringctl checkpoint ls {}`.",
                     scene.kept_step, scene.job_id);
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
                                   fmt::arg("worker", worker), fmt::arg("host", host)) +
                       Kept(scene));
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
