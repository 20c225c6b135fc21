#include "tests/cli/fake_jobs.h"

#include <grpcpp/security/server_credentials.h>

#include "common/model/build.h"

namespace ringmaster::cli {
namespace {

// `job` has already ended or waits for ever.
bool IsOver(const v1::JobStatus& job) { return job.state() >= v1::JOB_STATE_SUCCEEDED; }

v1::JobStatus Renamed(v1::JobStatus status, const std::string& job_id) {
  status.set_job_id(job_id);
  return status;
}

v1::LogLine Line(const std::string& worker, uint64_t number, const std::string& level,
                 const std::string& text, uint64_t lost) {
  v1::LogLine line;
  line.set_worker(worker);
  line.set_number(number);
  line.set_unix_ms(kSubmitted + 1000 + static_cast<int64_t>(number) * 7);
  line.set_level(level);
  line.set_text(text);
  line.set_lost(lost);
  return line;
}

void AddEvent(v1::ListEventsResponse* events, const std::string& type, const std::string& severity,
              const std::string& subject, const std::string& message) {
  v1::Event& event = *events->add_events();
  event.set_number(static_cast<uint64_t>(events->events_size()));
  event.set_unix_ms(kSubmitted + 1000 * static_cast<int64_t>(event.number()));
  event.set_type(type);
  event.set_severity(severity);
  event.set_subject(subject);
  event.set_message(message);
}

// Losses that fall, of j0003 faster than of others.
v1::MetricPoint PointAt(uint64_t step, bool epochs, const v1::JobStatus& job) {
  v1::MetricPoint point;
  point.set_step(step);
  point.set_epoch(step / 94);
  point.set_unix_ms(kSubmitted + 500 * static_cast<int64_t>(step));
  const auto put = [&point](const std::string& name, double value) {
    v1::MetricValue& added = *point.add_values();
    added.set_name(name);
    added.set_value(value);
  };
  const double pace = job.job_id() == "j0003" ? 0.02 : 0.01;
  const double loss = 2.5 / (1 + pace * static_cast<double>(step));
  if (epochs) {
    put("test/accuracy", 1 - loss / 2.5);
    put("validation/loss", loss + 0.125);
    put("train/loss", loss);
    return point;
  }
  put("train/loss", loss);
  put("learning_rate", 0.01);
  if (job.has_loss_scale()) put("loss_scale", 512);
  put("samples_per_second", 640);
  put("step/compute", 0.0875);
  put("step/total", 0.1);
  return point;
}

// One that is busy, and one that cannot tell everything.
void AddDevices(v1::WorkerStatus* worker) {
  for (const uint32_t index : {0U, 1U}) {
    v1::DeviceFigures& device = *worker->add_devices();
    device.set_kind("cuda");
    device.set_index(index);
    device.set_name("NVIDIA H100 80GB HBM3");
    device.set_memory_total(uint64_t{85'520'809'984});
  }
  v1::DeviceFigures& busy = *worker->mutable_devices(0);
  busy.set_memory_used(uint64_t{31'675'383'808});
  busy.set_utilization(97);
  busy.set_temperature(64);
  busy.set_power(612'430);
  busy.set_power_limit(700'000);
}

}  // namespace

FakeJobs::FakeJobs() {
  Add("j0001", {Ended(v1::JOB_STATE_CANCELLED, "cancelled by the user")});
  Add("j0002", {Failed()});
  Add("j0003", {Succeeded()});
  Add("j0004", {RunningInFloat16(), Ended(v1::JOB_STATE_WAITING, "worker b left: 1 is missing"),
                RunningAt(188), RunningAt(189), RunningAt(282), Succeeded()});
  Add("j0005", {Waiting()});
  Add("j0006", {Starting(3), Failed()});
  Add("j0007", {Queued(), Starting(0), Starting(2), Starting(6), RunningAt(1), RunningAt(94),
                RunningAt(95), RunningAt(188), RunningAt(189), RunningAt(282), Succeeded()});
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(this);
  builder.RegisterService(&bench_);
  builder.RegisterService(&access_);
  server_ = builder.BuildAndStart();
}

void FakeJobs::Add(const std::string& job_id, Story story) {
  for (v1::JobStatus& status : story) status = Renamed(status, job_id);
  jobs_.emplace(job_id, std::move(story));
}

grpc::Status FakeJobs::Find(const std::string& job_id, const Story** story) const {
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) {
    return ToGrpc(Error(absl::StatusCode::kNotFound, "there is no job {}", job_id), "NO_SUCH_JOB",
                  {});
  }
  *story = &found->second;
  return grpc::Status::OK;
}

grpc::Status FakeJobs::Submit(grpc::ServerContext*, const v1::SubmitRequest* request,
                              v1::SubmitResponse* response) {
  for (const std::string& other : {request->resume_job(), request->like_job()}) {
    if (other.empty()) continue;
    const Story* story = nullptr;
    const grpc::Status status = Find(other, &story);
    if (!status.ok()) return status;
    if (!request->resume_job().empty() && !IsOver(story->front())) {
      return ToGrpc(Error(absl::StatusCode::kFailedPrecondition, "job {} has not ended", other),
                    "JOB_NOT_ENDED", {});
    }
  }
  response->set_job_id(request->spec().name() == "refused" ? "" : "j0003");
  if (!response->job_id().empty()) return grpc::Status::OK;
  return ToGrpc(Error(absl::StatusCode::kResourceExhausted, "1000 jobs are queued already"),
                "QUEUE_FULL", {});
}

grpc::Status FakeJobs::List(grpc::ServerContext*, const v1::ListRequest*,
                            v1::ListResponse* response) {
  for (auto job = jobs_.rbegin(); job != jobs_.rend(); ++job) {
    *response->add_jobs() = job->second.front();
  }
  return grpc::Status::OK;
}

grpc::Status FakeJobs::Get(grpc::ServerContext*, const v1::GetRequest* request,
                           v1::JobStatus* response) {
  const Story* story = nullptr;
  const grpc::Status status = Find(request->job_id(), &story);
  if (status.ok()) *response = story->front();
  return status;
}

grpc::Status FakeJobs::GetGraph(grpc::ServerContext*, const v1::GetRequest* request,
                                v1::Graph* response) {
  const Story* story = nullptr;
  const grpc::Status status = Find(request->job_id(), &story);
  v1::Model model;
  model.set_name("linear");
  if (status.ok()) *response = *model::BuildGraph(model, model::ImagesAndLabels(zoo::kCifar));
  return status;
}

grpc::Status FakeJobs::Watch(grpc::ServerContext*, const v1::WatchRequest* request,
                             grpc::ServerWriter<v1::JobStatus>* writer) {
  const Story* story = nullptr;
  const grpc::Status status = Find(request->job_id(), &story);
  if (!status.ok()) return status;
  for (const v1::JobStatus& job : *story) writer->Write(job);
  return grpc::Status::OK;
}

grpc::Status FakeJobs::Cancel(grpc::ServerContext*, const v1::CancelRequest* request,
                              v1::CancelResponse*) {
  const Story* story = nullptr;
  const grpc::Status status = Find(request->job_id(), &story);
  if (!status.ok() || !IsOver(story->front())) return status;
  return ToGrpc(Error(absl::StatusCode::kFailedPrecondition, "job {} has ended", request->job_id()),
                "JOB_ENDED", {});
}

// They stay, as what every other test asks of.
grpc::Status FakeJobs::Remove(grpc::ServerContext*, const v1::RemoveRequest* request,
                              v1::RemoveResponse*) {
  const Story* story = nullptr;
  const grpc::Status status = Find(request->job_id(), &story);
  if (!status.ok() || IsOver(story->front())) return status;
  return ToGrpc(FailedPrecondition("job {} has not ended", request->job_id()), "JOB_NOT_ENDED", {});
}

grpc::Status FakeJobs::Why(grpc::ServerContext*, const v1::WhyRequest* request,
                           v1::WhyResponse* response) {
  const Story* story = nullptr;
  const grpc::Status status = Find(request->job_id(), &story);
  if (!status.ok()) return status;
  const v1::JobStatus& job = story->front();
  response->set_state(job.state());
  response->set_reason(job.reason().empty() ? "it trains" : job.reason());
  response->add_history("submitted");
  response->add_history("placed on a and b: 8 shards on 2 workers");
  if (job.has_failure()) *response->mutable_failure() = job.failure();
  if (job.state() == v1::JOB_STATE_QUEUED) {
    response->add_advice("Start 2 more workers, or submit it again with --set workers.min=1.");
  }
  return grpc::Status::OK;
}

grpc::Status FakeJobs::ListEvents(grpc::ServerContext*, const v1::ListEventsRequest* request,
                                  v1::ListEventsResponse* response) {
  const Story* story = nullptr;
  const grpc::Status status = Find(request->job_id(), &story);
  if (!status.ok() || !story->front().has_failure()) return status;
  AddEvent(response, "Submitted", "info", "job", "alexnet on cifar10, batch 64");
  AddEvent(response, "Placed", "info", "job", "8 shards on 2 workers");
  AddEvent(response, "LossScaleChanged", "warning", "a", "32768 to 16384 at step 7");
  AddEvent(response, "StateChanged", "error", "job", "FAILED: worker b was lost");
  return status;
}

grpc::Status FakeJobs::GetMetrics(grpc::ServerContext*, const v1::GetMetricsRequest* request,
                                  v1::GetMetricsResponse* response) {
  constexpr int kPage = 7;
  const Story* story = nullptr;
  const grpc::Status status = Find(request->job_id(), &story);
  if (!status.ok()) return status;
  const v1::JobStatus& job = story->front();
  const bool epochs = request->series() == v1::METRIC_SERIES_EPOCHS;
  response->set_next_after(request->after());
  for (uint64_t step = 1; step <= job.step(); ++step) {
    const bool ends = step % 94 == 0 || step == job.step();
    if (step <= request->after() || !(epochs ? ends : step % 10 == 1)) continue;
    if (response->points_size() == kPage) {
      response->set_more(true);
      break;
    }
    response->set_next_after(step);
    *response->add_points() = PointAt(step, epochs, job);
  }
  return grpc::Status::OK;
}

grpc::Status FakeJobs::Logs(grpc::ServerContext*, const v1::LogsRequest* request,
                            grpc::ServerWriter<v1::LogLine>* writer) {
  const Story* story = nullptr;
  const grpc::Status status = Find(request->job_id(), &story);
  if (!status.ok()) return status;
  if (!request->worker().empty() && request->worker() != "a" && request->worker() != "b") {
    return ToGrpc(Error(absl::StatusCode::kNotFound,
                        "worker {} never served job {}; its workers: "
                        "a, b",
                        request->worker(), request->job_id()),
                  "NO_SUCH_WORKER", {});
  }
  for (const v1::LogLine& line :
       {Line("a", 1, "info", "job j0004: 4 shards", 0), Line("b", 1, "info", "ready", 0),
        Line("a", 2, "warning", "step 7: a gradient overflowed\x1b[2J", 0),
        Line("b", 15, "error", "ring: the predecessor is gone", 13)}) {
    if (request->worker().empty() || request->worker() == line.worker()) writer->Write(line);
  }
  return grpc::Status::OK;
}

grpc::Status FakeJobs::ListWorkers(grpc::ServerContext*, const v1::ListWorkersRequest*,
                                   v1::ListWorkersResponse* response) {
  for (const char* name : {"a", "b"}) {
    v1::WorkerStatus& worker = *response->add_workers();
    worker.set_name(name);
    worker.set_host(*name == 'a' ? "north" : "south");
    worker.set_state(StateOf(name));
    worker.set_cores(2);
    worker.set_threads_per_core(1);
    worker.set_memory_per_core(uint64_t{8} << 30);
    worker.set_ring_address(*name == 'a' ? "10.0.0.1:4000" : "10.0.0.2:4000");
    if (*name == 'a') worker.set_job_id("j0004");
    if (*name == 'a') worker.set_faster_without(12.3);
    worker.set_class_(*name == 'a' ? "cpu-avx2-04bd77e1" : "cuda-sm_90-9a31f02c");
    worker.mutable_numerics_class()->set_backend(*name == 'a' ? "cpu" : "cuda");
    if (*name == 'b') {
      AddDevices(&worker);
      continue;
    }
    worker.mutable_data_fetch()->set_bytes(uint64_t{120} << 20);
    worker.mutable_data_fetch()->set_total_bytes(uint64_t{200} << 20);
    worker.mutable_data_fetch()->set_source("worker c at 10.0.0.3:4000\x1b[2J");
    worker.mutable_data_fetch()->set_bytes_per_second(95 << 20);
  }
  return grpc::Status::OK;
}

std::string FakeJobs::StateOf(const std::string& worker) {
  const MutexLock lock(mu_);
  const auto drained = drained_.find(worker);
  if (drained == drained_.end()) return worker == "a" ? "BUSY" : "FREE";
  // `a` never gets free; `b` takes two looks.
  return worker == "b" && ++drained->second > 2 ? "DRAINED" : "DRAINING";
}

grpc::Status FakeJobs::DrainWorker(grpc::ServerContext*, const v1::DrainWorkerRequest* request,
                                   v1::DrainWorkerResponse* response) {
  const std::string& worker = request->worker();
  if (worker != "a" && worker != "b") {
    return ToGrpc(Error(absl::StatusCode::kNotFound, "no worker {} is attached", worker),
                  "WORKER_NOT_FOUND", {});
  }
  const MutexLock lock(mu_);
  if (request->resume()) {
    drained_.erase(worker);
    return grpc::Status::OK;
  }
  drained_[worker] = 0;
  if (worker == "a") response->set_job_id("j0004");
  return grpc::Status::OK;
}

namespace {

// `times` longer than one nanosecond a byte, and 80 us, the last rounds a little.
v1::AllReduceTimes TimesOf(const v1::AllReduceRequest& request, uint64_t bytes, double times) {
  v1::AllReduceTimes result;
  const double seconds = 80e-6 + times * static_cast<double>(bytes) * 1e-9;
  for (uint32_t i = 0; i < request.rounds(); ++i) result.add_seconds(seconds * (1 + 0.1 * i));
  const double median = result.seconds(static_cast<int>(request.rounds()) / 2);
  result.set_median_seconds(median);
  result.set_algorithm_bytes_per_second(static_cast<double>(bytes) / median);
  result.set_bus_bytes_per_second(static_cast<double>(bytes) / median);
  result.set_sent_bytes(2 * bytes);
  return result;
}

}  // namespace

grpc::Status FakeBench::AllReduce(grpc::ServerContext*, const v1::AllReduceRequest* request,
                                  v1::AllReduceReport* response) {
  if (request->workers().empty()) {
    return ToGrpc(FailedPrecondition("worker a serves job j0004: a measurement beside a job would "
                                     "be of both; wait until it ended"),
                  "WORKER_BUSY", {});
  }
  *response->mutable_workers() = request->workers();
  response->set_rounds(request->rounds());
  response->set_seed(request->seed());
  for (int i = 0; i < request->workers_size(); ++i) {
    v1::BenchLink& link = *response->add_links();
    link.set_from(request->workers(i));
    link.set_to(request->workers((i + 1) % request->workers_size()));
    link.set_bytes_per_second(1.25e9 / (i + 1));
    link.set_round_trip_seconds(105e-6 * (i + 1));
  }
  for (const uint64_t bytes : request->bytes()) {
    v1::AllReduceRow& row = *response->add_rows();
    row.set_bytes(bytes);
    for (const int sums : request->sums()) {
      const bool exact = sums == v1::BENCH_SUMS_EXACT;
      (exact ? *row.mutable_exact() : *row.mutable_float32()) =
          TimesOf(*request, bytes, exact ? 1 : 1.4);
    }
    if (request->sums_size() < 2) continue;
    row.set_ratio(row.float32().median_seconds() / row.exact().median_seconds());
  }
  return grpc::Status::OK;
}

grpc::Status FakeJobs::VerifyCheckpoints(grpc::ServerContext*,
                                         const v1::VerifyCheckpointsRequest* request,
                                         v1::VerifyCheckpointsResponse* response) {
  const Story* story = nullptr;
  const grpc::Status status = Find(request->job_id(), &story);
  if (!status.ok()) return status;
  const v1::JobStatus& job = story->front();
  for (const v1::CheckpointRef& ref : {job.best_checkpoint(), job.checkpoint()}) {
    if (ref.path().empty() || (request->has_step() && request->step() != ref.step())) continue;
    v1::CheckedCheckpoint& checked = *response->add_checkpoints();
    *checked.mutable_checkpoint() = ref;
    if (ref.step() == 94) checked.set_error("model.safetensors has SHA-256 00, expected 11");
  }
  return grpc::Status::OK;
}

grpc::Status FakeJobs::ListCheckpoints(grpc::ServerContext*,
                                       const v1::ListCheckpointsRequest* request,
                                       v1::ListCheckpointsResponse* response) {
  const Story* story = nullptr;
  const grpc::Status status = Find(request->job_id(), &story);
  if (!status.ok()) return status;
  const v1::JobStatus& job = story->front();
  if (job.has_best_checkpoint()) *response->add_checkpoints() = job.best_checkpoint();
  if (job.has_checkpoint()) *response->add_checkpoints() = job.checkpoint();
  return status;
}

}  // namespace ringmaster::cli
