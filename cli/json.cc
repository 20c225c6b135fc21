#include "cli/json.h"

#include <fmt/format.h>

namespace ringmaster::cli {
namespace {

// The value when it is known, else null.
template <typename T>
Json Known(bool known, const T& value) {
  return known ? Json(value) : Json(nullptr);
}

Json TimeOrNull(int64_t unix_ms) { return Known(unix_ms != 0, unix_ms); }

template <typename Repeated>
Json List(const Repeated& values) {
  Json list = Json::array();
  for (const auto& value : values) list.push_back(ToJson(value));
  return list;
}

Json WorkersOf(const v1::JobStatus& status) {
  Json workers = Json::array();
  for (const v1::JobWorker& worker : status.workers()) {
    Json shards = Json::array();
    for (const uint32_t shard : worker.shards()) shards.push_back(shard);
    workers.push_back(
        {{"name", worker.name()}, {"shards", shards}, {"ring_bytes", worker.ring_bytes()}});
  }
  return workers;
}

}  // namespace

std::string StateName(v1::JobState state) {
  static const std::string kPrefix = "JOB_STATE_";
  const std::string& name = v1::JobState_Name(state);
  if (state == v1::JOB_STATE_UNSPECIFIED || name.size() <= kPrefix.size()) return "UNKNOWN";
  return name.substr(kPrefix.size());
}

std::string GenerationName(const v1::JobStatus& status) {
  const v1::Generation& generation = status.generation();
  if (generation.term() == 0 && generation.counter() == 0) return "";
  return fmt::format("{}.{}", generation.term(), generation.counter());
}

Json ToJson(const v1::CheckpointRef& checkpoint) {
  return {
      {"path", checkpoint.path()}, {"step", checkpoint.step()}, {"sha256", checkpoint.sha256()}};
}

Json ToJson(const v1::JobStatus& status) {
  const bool measured = status.step() > 0;
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
          {"checkpoint", status.has_checkpoint() ? ToJson(status.checkpoint()) : Json(nullptr)},
          {"submitted_unix_ms", TimeOrNull(status.submitted_unix_ms())},
          {"started_unix_ms", TimeOrNull(status.started_unix_ms())},
          {"finished_unix_ms", TimeOrNull(status.finished_unix_ms())}};
}

Json ToJson(const v1::WorkerStatus& worker) {
  return {{"name", worker.name()},
          {"state", worker.state()},
          {"cores", worker.cores()},
          {"threads_per_core", worker.threads_per_core()},
          {"memory_per_core", worker.memory_per_core()},
          {"ring_address", worker.ring_address()},
          {"job_id", Known(!worker.job_id().empty(), worker.job_id())},
          {"backend", worker.numerics_class().backend()},
          {"device_model", worker.numerics_class().device_model()},
          {"instruction_set", worker.numerics_class().instruction_set()}};
}

Json ToJson(const v1::ListResponse& jobs) { return {{"jobs", List(jobs.jobs())}}; }

Json ToJson(const v1::ListWorkersResponse& workers) {
  return {{"workers", List(workers.workers())}};
}

Json ToJson(const v1::ListCheckpointsResponse& checkpoints) {
  return {{"checkpoints", List(checkpoints.checkpoints())}};
}

Json ToJson(const std::string& job_id, const v1::WhyResponse& why) {
  Json history = Json::array();
  for (const std::string& line : why.history()) history.push_back(line);
  return {{"job_id", job_id},
          {"state", StateName(why.state())},
          {"reason", why.reason()},
          {"history", history}};
}

}  // namespace ringmaster::cli
