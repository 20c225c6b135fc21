#include "cli/show/json.h"

#include <catch2/catch.hpp>
#include <limits>

#include "tests/cli/job_statuses.h"

namespace ringmaster::cli {
namespace {

TEST_CASE("Json: every state has the name that the proto gives it") {
  const auto name = [](v1::JobState state) { return ToJson(Ended(state, "why"))["state"]; };
  CHECK(name(v1::JOB_STATE_STARTING) == "STARTING");
  CHECK(name(v1::JOB_STATE_WAITING) == "WAITING");
  CHECK(name(v1::JOB_STATE_FAILED) == "FAILED");
  CHECK(name(v1::JOB_STATE_CANCELLED) == "CANCELLED");
  CHECK(name(v1::JOB_STATE_UNSPECIFIED) == "UNKNOWN");
  CHECK(name(static_cast<v1::JobState>(99)) == "UNKNOWN");
}

TEST_CASE("Json: a job has the same fields in every state") {
  const auto keys = [](const v1::JobStatus& status) {
    std::string keys;
    const Json json = ToJson(status);
    for (const auto& [key, value] : json.items()) keys += key + " ";
    return keys;
  };
  CHECK(keys(Queued()) == keys(Running()));
  CHECK(keys(Queued()) == keys(Succeeded()));
  CHECK(keys(Queued()) == keys(RunningInFloat16()));
  CHECK(keys(Queued()) == keys(Failed()));
  CHECK(keys(Queued()) == keys(Ended(v1::JOB_STATE_FAILED, "why")));
}

TEST_CASE("Json: a metric that is not a number is null, not broken JSON") {
  v1::JobStatus status = Running();
  status.mutable_metrics(0)->set_value(std::numeric_limits<double>::quiet_NaN());
  CHECK(Json::parse(ToJson(status).dump())["metrics"]["train"]["loss"].is_null());
}

TEST_CASE("Json: metrics are by split, then by name; a split without any is not there") {
  CHECK(ToJson(Queued())["metrics"] == Json::object());
  CHECK(ToJson(RunningAt(125))["metrics"].dump() ==
        R"({"train":{"loss":1.5,"accuracy":0.375},"test":{"accuracy":0.25}})");
  CHECK(ToJson(RunningInFloat16())["metrics"]["validation"].dump() ==
        R"({"loss":1.625,"accuracy":0.3125})");
}

TEST_CASE("Json: what an older coordinator does not tell is null, not zero") {
  v1::JobStatus status = Running();
  status.clear_updates();
  status.clear_learning_rate();
  status.clear_steps_per_epoch();
  status.mutable_workers(0)->clear_step_times();
  const Json json = ToJson(status);
  for (const char* key : {"updates", "skipped_steps", "learning_rate", "steps_per_epoch"}) {
    CAPTURE(key);
    CHECK(json[key].is_null());
  }
  CHECK(json["workers"][0]["step_times"].is_null());
  CHECK(json["workers"][1]["step_times"]["total_ms"] == 125);
  CHECK(json["workers"][1]["step_times"]["wait_ms"] == 12);
}

TEST_CASE("Json: lists are objects with one list, empty ones too") {
  CHECK(ToJson(v1::ListResponse()).dump() == R"({"jobs":[]})");
  CHECK(ToJson(v1::ListWorkersResponse()).dump() == R"({"workers":[]})");
  CHECK(ToJson(v1::ListCheckpointsResponse()).dump() == R"({"checkpoints":[]})");
}

TEST_CASE("Json: a worker has its cores, and no job when it is free") {
  v1::ListWorkersResponse workers;
  v1::WorkerStatus& worker = *workers.add_workers();
  worker.set_name("a");
  worker.set_state("FREE");
  worker.set_cores(2);
  worker.set_threads_per_core(1);
  worker.set_memory_per_core(uint64_t{8} << 30);
  worker.set_ring_address("127.0.0.1:4000");
  worker.set_class_("cpu-avx2-04bd77e1");
  worker.mutable_numerics_class()->set_backend("cpu");
  worker.add_interpreters("default");
  CHECK(
      ToJson(workers).dump() ==
      R"({"workers":[{"name":"a","state":"FREE","reason":null,"cores":2,"threads_per_core":1,)"
      R"("memory_per_core_bytes":8589934592,"host":null,"ring_address":"127.0.0.1:4000",)"
      R"("job_id":null,"faster_without_percent":null,"class":"cpu-avx2-04bd77e1",)"
      R"("backend":"cpu","device_model":"","instruction_set":"","compute_id":"",)"
      R"("interpreters":["default"],"devices":[],"clock_ahead_ms":null,"host_figures":null,"data_fetch":null}]})");
}

TEST_CASE("Json: what a device cannot tell is null, and an idle one is 0 percent busy") {
  v1::WorkerStatus worker;
  v1::DeviceFigures& device = *worker.add_devices();
  device.set_kind("cuda");
  device.set_index(1);
  device.set_name("NVIDIA Abacus");
  device.set_memory_total(1000);
  device.set_utilization(0);
  CHECK(ToJson(worker)["devices"].dump() ==
        R"([{"kind":"cuda","index":1,"name":"NVIDIA Abacus","memory_used_bytes":null,)"
        R"("memory_total_bytes":1000,"utilization":0,"temperature":null,"power":null,)"
        R"("power_limit":null}])");
}

TEST_CASE("Json: why has the reason and its history") {
  v1::WhyResponse why;
  why.set_state(v1::JOB_STATE_QUEUED);
  why.set_reason("2 workers are missing");
  why.add_history("submitted");
  CHECK(ToJson("job-1", why).dump() ==
        R"({"job_id":"job-1","state":"QUEUED","reason":"2 workers are missing",)"
        R"("history":["submitted"],"failure":null,"advice":[]})");
}

}  // namespace
}  // namespace ringmaster::cli
