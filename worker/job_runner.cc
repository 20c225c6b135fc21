#include "worker/job_runner.h"

#include <malloc.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <utility>

#include "common/check.h"
#include "common/signals.h"
#include "worker/checkpoint_upload.h"

namespace ringmaster::worker {
namespace {

StateSources NetworkSources(const std::shared_ptr<grpc::Channel>& coordinator) {
  StateSources sources;
  sources.peer = &FetchState;
  sources.checkpoint = [coordinator](const v1::CheckpointSource& source,
                                     std::chrono::steady_clock::time_point deadline,
                                     const std::stop_token& stop) {
    return FetchCheckpoint(coordinator, source, deadline, stop);
  };
  return sources;
}

}  // namespace

JobRunner::JobRunner(JobRunnerOptions options, Backend* backend, ring::RingPort* port,
                     StateService* states, std::shared_ptr<grpc::Channel> coordinator,
                     std::function<void(Event)> post)
    : options_(std::move(options)),
      backend_(backend),
      states_(states),
      post_(std::move(post)),
      phases_(post_),
      surroundings_{options_.name.value(),
                    options_.incarnation,
                    port,
                    coordinator,
                    NetworkSources(coordinator),
                    &phases_,
                    post_,
                    [this]() { return Rights(); }} {}

JobRunner::~JobRunner() { Stop(); }

void JobRunner::Start() {
  thread_ = std::jthread([this]() { Loop(); });
  pthread_setname_np(thread_.native_handle(), "job");
}

void JobRunner::Submit(Task task) {
  if (const auto* inspect = std::get_if<InspectDataset>(&task)) options_.begins(inspect->job);
  std::stop_source former_delivery;
  {
    MutexLock lock(mu_);
    if (const auto* inspect = std::get_if<InspectDataset>(&task)) job_ = inspect->job;
    if (const auto* run = std::get_if<RunJob>(&task)) {
      generation_ = GenerationOf(run->start);
      run_ = RunStops();
    }
    former_delivery = std::exchange(delivery_, std::stop_source());
  }
  if (const auto* run = std::get_if<RunJob>(&task)) {
    states_->Admit(run->job, GenerationOf(run->start), run->start.ticket());
  }
  // Whatever comes next, that state is not needed as a checkpoint any more.
  former_delivery.request_stop();
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
  std::stop_source delivery;
  {
    MutexLock lock(mu_);
    delivery = delivery_;
  }
  delivery.request_stop();
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
  phases_.Enter(task.job, "data_check");
  InspectDone done;
  done.job = task.job;
  StatusOr<std::shared_ptr<const Dataset>> dataset = Dataset::Open(options_.folders, task.data);
  if (dataset.ok()) {
    dataset_ = *std::move(dataset);
    done.facts = dataset_->facts();
    spdlog::info("dataset inspected: job={} format={} files={} train={} test={} classes={}",
                 task.job.value(), done.facts.format(), done.facts.files_size(),
                 done.facts.train_samples(), done.facts.test_samples(), done.facts.classes());
  } else {
    done.error = Message(dataset.status());
  }
  phases_.Pause();
  post_(std::move(done));
}

void JobRunner::Do(const PrepareJob& task) {
  TrainerOptions options;
  options.on_phase = [&](const char* phase) { phases_.Enter(task.job, phase); };
  options.on_snapshot = [post = post_, job = task.job](const HeldCopy& copy) {
    post(SnapshotHeld{job, copy.step, copy.manifest_sha256, copy.held});
  };
  PrepareDone done;
  done.job = task.job;
  StatusOr<std::unique_ptr<Trainer>> trainer =
      Trainer::Prepare(task.job, task.resolved, dataset_, backend_, options_.cores, options);
  if (trainer.ok()) {
    done.known_shard_sha256 = (*trainer)->known_shard_sha256();
    done.digest = DigestBytes((*trainer)->digest());
    mark_ = StateMark();
    const std::shared_ptr<Trainer> prepared = *std::move(trainer);
    states_->Offer(task.job, [prepared](uint64_t step) { return prepared->Copy(step); });
    MutexLock lock(mu_);
    trainer_ = prepared;
  } else {
    done.error = Message(trainer.status());
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

void JobRunner::Do(const DropJob& task) {
  states_->Withdraw();
  std::shared_ptr<Trainer> trainer;
  {
    MutexLock lock(mu_);
    trainer = std::move(trainer_);
    job_ = JobId();
    generation_ = GenerationId();
  }
  phases_.Clear();
  trainer.reset();
  dataset_.reset();
  malloc_trim(0);  // threads that ended leave heaps behind
  spdlog::info("job dropped: job={}", task.job.value());
  options_.ended(task.job);
}

}  // namespace ringmaster::worker
