#include "worker/job/job_runner.h"

#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <chrono>
#include <string_view>
#include <utility>
#include <vector>

#include "common/amount.h"
#include "common/check.h"
#include "common/data/beneath.h"
#include "common/signals.h"
#include "worker/backend/failure.h"
#include "worker/job/bench_run.h"
#include "worker/job/checkpoint_upload.h"

namespace ringmaster::worker {
namespace {

// For the checkpoint that a job begins with: a coordinator that is away comes back.
constexpr std::chrono::minutes kInitLimit{10};

StatusOr<std::string> ReadWhole(const OwnedFile& file, const std::string& name) {
  const uint64_t most = HostMemory() / 2;  // a file of weights that is larger is no init
  struct stat status = {};
  if (fstat(file.get(), &status) != 0)
    return Error(absl::StatusCode::kUnavailable, "{}: fstat: {}", name, errno);
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size > most) {
    return InvalidArgument(
        "{} has {} bytes, and half of this host's memory is {}: is it the file "
        "of weights that was meant?",
        name, size, most);
  }
  auto bytes = ReadExactly(file.get(), 0, size);
  if (!bytes.ok()) return Annotate(bytes.status(), name);
  return bytes;
}

StatusOr<std::shared_ptr<const InitWeights>> Annotated(
    StatusOr<std::shared_ptr<const InitWeights>> weights, const std::string& name) {
  if (weights.ok()) return weights;
  return Annotate(weights.status(), name);
}

StateSources NetworkSources(const std::shared_ptr<grpc::Channel>& coordinator, const Dialer& dialer,
                            ring::RingPort* port) {
  StateSources sources;
  sources.peer = [dialer, port](FetchOptions options, StateSink* sink,
                                const std::stop_token& stop) {
    options.dialer = dialer;
    options.channel = port->TakeStateChannel({options.source, options.address});
    return FetchState(options, sink, stop);
  };
  sources.checkpoint = [coordinator](const v1::CheckpointSource& source,
                                     std::chrono::steady_clock::time_point deadline,
                                     const std::stop_token& stop) {
    return FetchCheckpoint(coordinator, source, deadline, stop);
  };
  return sources;
}

}  // namespace

JobRunner::JobRunner(JobRunnerOptions options, Backend* backend, ring::RingPort* port,
                     StateService* states, JobData* data,
                     std::shared_ptr<grpc::Channel> coordinator, std::function<void(Event)> post)
    : options_(std::move(options)),
      backend_(backend),
      states_(states),
      data_(data),
      post_(std::move(post)),
      phases_(post_),
      surroundings_{options_.name.value(),
                    options_.incarnation,
                    port,
                    coordinator,
                    NetworkSources(coordinator, options_.dialer, port),
                    &phases_,
                    post_,
                    [this]() { return Rights(); }} {}

JobRunner::~JobRunner() { Stop(); }

void JobRunner::Start() {
  thread_ = std::jthread([this]() { Loop(); });
  pthread_setname_np(thread_.native_handle(), "job");
}

void JobRunner::Begin(const InspectDataset& task) {
  options_.begins(task.job);
  data_->Begin(task);
  MutexLock lock(mu_);
  job_ = task.job;
}

void JobRunner::Submit(Task task) {
  if (const auto* inspect = std::get_if<InspectDataset>(&task)) Begin(*inspect);
  std::stop_source former_delivery, former_fetch;
  {
    MutexLock lock(mu_);
    if (std::holds_alternative<MeasureRing>(task)) bench_ = std::stop_source();
    if (std::holds_alternative<InspectDataset>(task)) devices_ = std::stop_source();
    if (const auto* run = std::get_if<RunJob>(&task)) {
      generation_ = GenerationOf(run->start);
      run_ = RunStops();
    }
    former_delivery = std::exchange(delivery_, std::stop_source());
    former_fetch = std::exchange(fetch_, std::stop_source());
  }
  if (const auto* run = std::get_if<RunJob>(&task)) {
    states_->Admit(run->job, GenerationOf(run->start), run->start.ticket());
  }
  // Whatever comes next, that state is not needed as a checkpoint any more.
  former_delivery.request_stop();
  former_fetch.request_stop();
  // The logic has at most two tasks under way: one that runs and a drop behind it.
  RING_CHECK(tasks_.TryPush(std::move(task)) || tasks_.closed(), "the job queue is full");
}

void JobRunner::Cancel(const std::string& reason, RunStop when) {
  spdlog::info("run ends {}: {}", when == RunStop::kNow ? "now" : "at a step boundary", reason);
  RunStops run;
  {
    MutexLock lock(mu_);
    run = run_;
  }
  run.Request(when);
}

void JobRunner::EndInspection() {
  std::stop_source fetch;
  {
    MutexLock lock(mu_);
    fetch = fetch_;
  }
  fetch.request_stop();
}

void JobRunner::EndWaits() {
  std::stop_source devices;
  {
    MutexLock lock(mu_);
    const bool prepared = trainer_ != nullptr;
    const bool computes = prepared && trainer_->pulse().phase != std::string_view(kRestartPhase);
    if (computes && !of_script_) return;
    devices = devices_;
  }
  devices.request_stop();
}

void JobRunner::EndMeasuring() {
  std::stop_source bench;
  {
    MutexLock lock(mu_);
    bench = bench_;
  }
  bench.request_stop();
}

std::stop_token JobRunner::fetch_stop() const {
  MutexLock lock(mu_);
  return fetch_.get_token();
}

std::stop_token JobRunner::devices_stop() const {
  MutexLock lock(mu_);
  return devices_.get_token();
}

std::shared_ptr<Trainer> JobRunner::trainer() const {
  MutexLock lock(mu_);
  return trainer_;
}

UploadRights JobRunner::Rights() const {
  MutexLock lock(mu_);
  return {options_.ticket(), generation_};
}

void JobRunner::ForgetCopies(uint64_t step) {
  const std::shared_ptr<Trainer> trainer = this->trainer();
  if (trainer != nullptr) trainer->ForgetCopies(step);
}

void JobRunner::Stop() {
  if (!thread_.joinable()) return;
  tasks_.Close();
  Cancel("the worker stops", RunStop::kNow);
  EndMeasuring();
  std::stop_source delivery, fetch, devices;
  {
    MutexLock lock(mu_);
    delivery = delivery_;
    fetch = fetch_;
    devices = devices_;
  }
  delivery.request_stop();
  fetch.request_stop();
  devices.request_stop();
  thread_.join();
  states_->Withdraw();
  // Its threads post, too.
  std::shared_ptr<Trainer> trainer;
  MutexLock lock(mu_);
  trainer = std::exchange(trainer_, nullptr);
}

v1::Heartbeat JobRunner::heartbeat() const {
  v1::Heartbeat heartbeat;
  MutexLock lock(mu_);
  heartbeat.set_job_id(job_.value());
  heartbeat.mutable_generation()->set_term(generation_.term);
  heartbeat.mutable_generation()->set_counter(generation_.counter);
  heartbeat.set_phase(phases_.shown());
  if (auto fetch = data_->progress()) *heartbeat.mutable_data_fetch() = *std::move(fetch);
  if (trainer_ != nullptr) {
    const Pulse pulse = trainer_->pulse();
    const bool starting = !training_ && *phases_.shown() != 0;
    if (!starting) heartbeat.set_phase(pulse.phase);
    heartbeat.set_progress(pulse.progress);
    heartbeat.set_applied(pulse.applied);
  }
  return heartbeat;
}

void JobRunner::Loop() {
  while (true) {
    // An hour only bounds each single wait: a free worker waits as long as it is free.
    std::optional<Task> task = tasks_.Pop(std::chrono::steady_clock::now() + std::chrono::hours(1));
    if (tasks_.closed()) return;
    if (task) std::visit([this](const auto& value) { Do(value); }, *task);
  }
}

void JobRunner::Do(const InspectDataset& task) {
  Begin(task);  // again: a drop that came before it may have been carried out since
  phases_.Enter(task.job, task.script ? "script" : "data_check");
  InspectDone done;
  done.job = task.job;
  if (task.script) {
    InspectScript(task, &done);
  } else {
    InspectData(task, &done);
  }
  if (task.init && done.error.empty()) {
    auto init = FindInit(*task.init);
    if (init.ok()) {
      init_ = *std::move(init);
      done.init = init_->facts();
    } else {
      done.init_error = Message(init.status());
    }
  }
  phases_.Pause();
  post_(std::move(done));
}

void JobRunner::InspectData(const InspectDataset& task, InspectDone* done) {
  StatusOr<std::shared_ptr<const Dataset>> dataset = data_->Open(task, fetch_stop());
  if (!dataset.ok()) {
    done->error = Message(dataset.status());
    done->code = FailureOf(WithFailure(v1::FAILURE_CODE_DATASET, dataset.status()));
    return;
  }
  dataset_ = *std::move(dataset);
  done->facts = dataset_->facts();
  spdlog::info("dataset inspected: job={} format={} files={} train={} test={} columns={}",
               task.job.value(), done->facts.format(), done->facts.files_size(),
               done->facts.train_samples(), done->facts.test_samples(), done->facts.columns_size());
}

void JobRunner::InspectScript(const InspectDataset& task, InspectDone* done) {
  auto script = script::ScriptJob::Open(*task.script, options_.script, fetch_stop());
  if (!script.ok()) {
    done->error = Message(script.status());
    done->code = FailureOf(script.status());
    return;
  }
  script_ = *std::move(script);
  of_script_ = true;
  done->script = script_->facts();
  spdlog::info("script attached: job={} file={} tensors={} groups={} samples={}", task.job.value(),
               task.script->file(), done->script->tensors_size(), done->script->groups_size(),
               done->script->samples());
}

StatusOr<std::shared_ptr<const InitWeights>> JobRunner::FindInit(const v1::InitSource& source) {
  if (!source.has_checkpoint()) {
    RING_ASSIGN_OR_RETURN(const OwnedFile root, data::OpenFolder(options_.data_root));
    RING_ASSIGN_OR_RETURN(const OwnedFile file,
                          data::OpenBeneath(root, source.file(), data::Wanted::kFile));
    RING_ASSIGN_OR_RETURN(std::string bytes, ReadWhole(file, source.file()));
    return Annotated(InitWeights::Read(std::move(bytes)), source.file());
  }
  RING_ASSIGN_OR_RETURN(
      Checkpoint checkpoint,
      surroundings_.sources.checkpoint(
          source.checkpoint(), std::chrono::steady_clock::now() + kInitLimit, fetch_stop()));
  const std::string name = source.average() ? "ema.safetensors" : "model.safetensors";
  for (CheckpointFile& file : checkpoint.files) {
    if (file.name != name) continue;
    return Annotated(InitWeights::Read(std::move(file.bytes)), name);
  }
  return InvalidArgument(
      "the checkpoint of step {} of {} has no {}{}", checkpoint.step, source.checkpoint().job_id(),
      name, source.average() ? ": that job keeps no average; leave out init.average" : "");
}

void JobRunner::Do(const PrepareJob& task) {
  TrainerOptions options;
  options.input = options_.input;
  options.init = std::move(init_);
  options.on_phase = [&](const char* phase) { phases_.Enter(task.job, phase); };
  options.on_snapshot = [post = post_, job = task.job](const HeldCopy& copy) {
    post(SnapshotHeld{job, copy.step, copy.manifest_sha256, copy.held});
  };
  PrepareDone done;
  done.job = task.job;
  if (const std::shared_ptr<Trainer> prepared = this->trainer(); prepared != nullptr) {
    prepared->BeginWith(task.resolved.result().class_maps());
    done.known_shard_sha256 = prepared->known_shard_sha256();
    done.known_shard_seconds = prepared->known_shard_seconds();
    done.digest = DigestBytes(prepared->digest());
    done.follows = prepared->follows();
    return post_(std::move(done));
  }
  std::vector<CoreOptions> cores = options_.cores;
  for (CoreOptions& core : cores) core.stop = devices_stop();
  if (script_ != nullptr) dataset_ = Dataset::OfFacts(task.resolved.result().data());
  StatusOr<std::unique_ptr<Trainer>> trainer =
      Trainer::Prepare(task.job, task.resolved, dataset_,
                       script_ != nullptr ? script_->backend() : backend_, cores, options);
  if (trainer.ok()) {
    done.known_shard_sha256 = (*trainer)->known_shard_sha256();
    done.known_shard_seconds = (*trainer)->known_shard_seconds();
    done.digest = DigestBytes((*trainer)->digest());
    done.follows = (*trainer)->follows();
    mark_ = StateMark();
    if (script_ != nullptr) script_->backend()->ForgetGiven();
    const std::shared_ptr<Trainer> prepared = *std::move(trainer);
    if (task.joins) prepared->MakeRoom();
    states_->Offer(task.job, [prepared](uint64_t step, Follows follows) {
      return prepared->Open(step, follows);
    });
    MutexLock lock(mu_);
    trainer_ = prepared;
  } else {
    done.error = Message(trainer.status());
    done.code = FailureOf(trainer.status());
  }
  phases_.Pause();
  post_(std::move(done));
}

void JobRunner::Do(const RunJob& task) {
  RunStops stops;
  {
    MutexLock lock(mu_);
    stops = run_;
  }
  post_(GenerationRun(&surroundings_, &task, trainer(), &mark_, &training_).Run(stops));
}

void JobRunner::Do(const DeliverState& task) {
  const std::shared_ptr<Trainer> trainer = this->trainer();
  StateDelivered delivered{task.job, trainer->applied(), ""};
  std::stop_token stop;
  {
    MutexLock lock(mu_);
    stop = delivery_.get_token();
  }
  CheckpointUpload upload(surroundings_.coordinator, task.job, surroundings_.rights);
  const StatusOr<Checkpoint> checkpoint = trainer->MakeCheckpoint();
  Status status = checkpoint.status();
  RetryPause pause;
  if (checkpoint.ok()) {
    post_(SnapshotHeld{task.job, checkpoint->step, checkpoint->manifest_sha256, {}});
    status = upload.Deliver(*checkpoint, stop);
  }
  while (status.code() == absl::StatusCode::kUnavailable && !WaitForStop(stop, pause.Next())) {
    status = upload.Deliver(*checkpoint, stop);
  }
  delivered.error = Message(status);
  post_(std::move(delivered));
}

void JobRunner::Do(const CheckHeldState& task) {
  post_(StateChecked{task.job, Message(trainer()->Check())});
}

void JobRunner::Do(const DropJob& task) {
  states_->Withdraw();
  surroundings_.port->KeepReady({});
  std::shared_ptr<Trainer> trainer;
  {
    MutexLock lock(mu_);
    trainer = std::move(trainer_);
    job_ = JobId();
    generation_ = GenerationId();
  }
  phases_.Clear();
  trainer.reset();
  script_.reset();
  of_script_ = false;
  dataset_.reset();
  data_->Drop(task.job, task.data_differs);
  init_.reset();
  spdlog::info("job dropped: job={}", task.job.value());
  options_.ended(task.job);
  if (const Status lost = backend_->lost(); !lost.ok()) options_.lost(lost);
}

void JobRunner::Do(const MeasureRing& task) {
  std::stop_token stop;
  {
    MutexLock lock(mu_);
    stop = bench_.get_token();
  }
  BenchEnded ended{RunBench(surroundings_.port, options_.dialer, surroundings_.name,
                            surroundings_.incarnation, task.measure, stop)};
  post_(std::move(ended));
}

}  // namespace ringmaster::worker
