#include "cli/json.h"

#include "cli/names.h"

namespace ringmaster::cli {
namespace {

Json OfDevice(const v1::DeviceFigures& device) {
  return {{"kind", device.kind()},
          {"index", device.index()},
          {"name", device.name()},
          {"memory_used_bytes", Known(device.memory_used() > 0, device.memory_used())},
          {"memory_total_bytes", Known(device.memory_total() > 0, device.memory_total())},
          {"utilization", Known(device.has_utilization(), device.utilization())},
          {"temperature", Known(device.has_temperature(), device.temperature())},
          {"power", Known(device.has_power(), device.power())},
          {"power_limit", Known(device.has_power_limit(), device.power_limit())}};
}

template <typename Repeated>
Json List(const Repeated& values) {
  Json list = Json::array();
  for (const auto& value : values) list.push_back(ToJson(value));
  return list;
}

}  // namespace

Json ToJson(const google::protobuf::RepeatedPtrField<std::string>& values) {
  Json list = Json::array();
  for (const std::string& value : values) list.push_back(value);
  return list;
}

Json ToJson(const v1::WorkerStatus& worker) {
  Json devices = Json::array();
  for (const v1::DeviceFigures& device : worker.devices()) devices.push_back(OfDevice(device));
  return {{"name", worker.name()},
          {"state", worker.state()},
          {"cores", worker.cores()},
          {"threads_per_core", worker.threads_per_core()},
          {"memory_per_core_bytes", worker.memory_per_core()},
          {"host", Known(!worker.host().empty(), worker.host())},
          {"ring_address", worker.ring_address()},
          {"job_id", Known(!worker.job_id().empty(), worker.job_id())},
          {"backend", worker.numerics_class().backend()},
          {"device_model", worker.numerics_class().device_model()},
          {"instruction_set", worker.numerics_class().instruction_set()},
          {"devices", devices}};
}

Json ToJson(const v1::ListResponse& jobs) { return {{"jobs", List(jobs.jobs())}}; }

Json ToJson(const v1::ListWorkersResponse& workers) {
  return {{"workers", List(workers.workers())}};
}

Json ToJson(const v1::ListCheckpointsResponse& checkpoints) {
  return {{"checkpoints", List(checkpoints.checkpoints())}};
}

Json ToJson(const v1::VerifyCheckpointsResponse& checked) {
  Json list = Json::array();
  for (const v1::CheckedCheckpoint& one : checked.checkpoints()) {
    list.push_back({{"step", one.checkpoint().step()},
                    {"path", one.checkpoint().path()},
                    {"sha256", one.checkpoint().sha256()},
                    {"ok", one.error().empty()},
                    {"error", Known(!one.error().empty(), one.error())}});
  }
  return {{"checkpoints", list}};
}

Json ToJson(const std::string& job_id, const v1::WhyResponse& why) {
  return {{"job_id", job_id},
          {"state", StateName(why.state())},
          {"reason", why.reason()},
          {"history", ToJson(why.history())},
          {"failure", why.has_failure() ? ToJson(why.failure()) : Json(nullptr)},
          {"advice", ToJson(why.advice())}};
}

Json ToJson(const v1::Event& event) {
  return {{"number", event.number()},   {"unix_ms", event.unix_ms()},
          {"type", event.type()},       {"severity", event.severity()},
          {"subject", event.subject()}, {"message", event.message()}};
}

Json ToJson(const std::string& job_id, const v1::ListEventsResponse& events) {
  return {{"job_id", job_id}, {"events", List(events.events())}};
}

Json ToJson(const v1::LogLine& line) {
  return {{"worker", line.worker()}, {"number", line.number()}, {"unix_ms", line.unix_ms()},
          {"level", line.level()},   {"text", line.text()},     {"lost", line.lost()}};
}

}  // namespace ringmaster::cli
