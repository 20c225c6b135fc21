#include "worker/job_runner.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/check.h"
#include "common/stop_wait.h"
#include "worker/checkpoint_upload.h"
#include "worker/run_observer.h"

namespace ringmaster::worker {
namespace {

// Neighbours start a generation at different moments; by then both have prepared the job.
constexpr std::chrono::seconds kConnectLimit{30};
// A neighbour that left the ring of its own accord has told the coordinator why, or is about to:
// its reason is better than ours, so ours waits this long for the end that follows from it.
constexpr std::chrono::seconds kBetterReasonLimit{2};

std::string Bytes(const Sha256Digest& digest) { return {digest.begin(), digest.end()}; }

GenerationId GenerationOf(const v1::Start& start) {
  return {start.generation().term(), start.generation().counter()};
}

Outcome OutcomeOf(RunEnd end) {
  switch (end) {
    case RunEnd::kFinished:
      return Outcome::kFinished;
    case RunEnd::kStopped:
      return Outcome::kStopped;
    case RunEnd::kPeerLost:
      return Outcome::kPeerLost;
    case RunEnd::kFailed:
      break;
  }
  return Outcome::kFailed;
}

// The neighbour that a link's error speaks of: links say `successor NAME` or `predecessor NAME`.
std::string NeighbourNamed(const v1::Start& start, uint32_t rank, const std::string& error) {
  const int size = start.ring_size();
  const std::string& successor = start.ring((static_cast<int>(rank) + 1) % size).name();
  const std::string& predecessor = start.ring((static_cast<int>(rank) + size - 1) % size).name();
  if (error.find("successor " + successor) != std::string::npos) return successor;
  if (error.find("predecessor " + predecessor) != std::string::npos) return predecessor;
  return "";
}

void LogEnd(const JobId& job, const GenerationId& generation, const RunResult& result) {
  const PhaseTimes& times = result.times;
  spdlog::info(
      "run ended: job={} generation={} applied={} reason={} input={:.2f}s compute={:.2f}s "
      "ring_wait={:.2f}s ring_transfer={:.2f}s update={:.2f}s evaluate={:.2f}s checkpoint={:.2f}s",
      job.value(), generation.ToString(), result.applied,
      result.reason.empty() ? "finished or stopped" : result.reason, times.input, times.compute,
      times.ring_wait, times.ring_transfer, times.update, times.evaluate, times.checkpoint);
}

}  // namespace

JobRunner::JobRunner(JobRunnerOptions options, Backend* backend, ring::RingPort* port,
                     std::shared_ptr<grpc::Channel> coordinator, std::function<void(Event)> post)
    : options_(std::move(options)),
      backend_(backend),
      port_(port),
      coordinator_(std::move(coordinator)),
      post_(std::move(post)),
      phases_(post_) {}

JobRunner::~JobRunner() { Stop(); }

void JobRunner::Start() {
  thread_ = std::jthread([this]() { Loop(); });
  pthread_setname_np(thread_.native_handle(), "job");
}

void JobRunner::Submit(Task task) {
  if (const auto* inspect = std::get_if<InspectDataset>(&task)) options_.begins(inspect->job);
  {
    MutexLock lock(mu_);
    if (const auto* inspect = std::get_if<InspectDataset>(&task)) job_ = inspect->job;
    if (const auto* run = std::get_if<RunJob>(&task)) {
      generation_ = GenerationOf(run->start);
      run_ = std::stop_source();
    }
  }
  // The logic has at most two tasks under way: one that runs and a drop behind it.
  RING_CHECK(tasks_.TryPush(std::move(task)) || tasks_.closed(), "the job queue is full");
}

void JobRunner::Cancel(const std::string& reason) {
  spdlog::info("run cancelled: {}", reason);
  std::stop_source run;
  {
    MutexLock lock(mu_);
    run = run_;
  }
  run.request_stop();
}

void JobRunner::Stop() {
  if (!thread_.joinable()) return;
  tasks_.Close();
  Cancel("the worker stops");
  thread_.join();
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
    const bool starting = !running_ && *phases_.shown() != 0;
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
  PrepareDone done;
  done.job = task.job;
  StatusOr<std::unique_ptr<Trainer>> trainer =
      Trainer::Prepare(task.job, task.resolved, dataset_, backend_, options_.cores, options);
  if (trainer.ok()) {
    done.known_shard_sha256 = (*trainer)->known_shard_sha256();
    done.digest = Bytes((*trainer)->digest());
    MutexLock lock(mu_);
    trainer_ = *std::move(trainer);
  } else {
    done.error = Message(trainer.status());
  }
  phases_.Pause();
  post_(std::move(done));
}

StatusOr<Assignment> JobRunner::AssignmentOf(const v1::Start& start) const {
  const auto self =
      std::find_if(start.ring().begin(), start.ring().end(), [this](const v1::RingMember& member) {
        return member.name() == options_.name.value() &&
               member.incarnation() == options_.incarnation;
      });
  if (self == start.ring().end()) {
    return Internal("generation {} of job {} does not contain worker {}",
                    GenerationOf(start).ToString(), start.job_id(), options_.name.value());
  }
  Assignment assignment;
  assignment.generation = GenerationOf(start);
  assignment.position.rank = static_cast<uint32_t>(self - start.ring().begin());
  assignment.position.size = static_cast<uint32_t>(start.ring_size());
  assignment.shards.assign(self->shards().begin(), self->shards().end());
  assignment.start_step = start.start_step();
  return assignment;
}

StatusOr<std::unique_ptr<ring::Link>> JobRunner::ConnectRing(const v1::Start& start,
                                                             const ring::Position& position,
                                                             const std::stop_token& stop) {
  if (position.size == 1) return std::unique_ptr<ring::Link>();
  const auto member = [&](uint32_t rank) -> const v1::RingMember& {
    return start.ring(static_cast<int>(rank % position.size));
  };
  ring::LinkOptions link;
  link.job_id = start.job_id();
  link.generation = GenerationOf(start);
  link.self_name = options_.name.value();
  link.self_incarnation = options_.incarnation;
  link.successor_name = member(position.rank + 1).name();
  link.successor_address = member(position.rank + 1).ring_address();
  link.predecessor_name = member(position.rank + position.size - 1).name();
  link.predecessor_incarnation = member(position.rank + position.size - 1).incarnation();
  link.stop = stop;
  return port_->Connect(link, std::chrono::steady_clock::now() + kConnectLimit);
}

RunEnded JobRunner::RunGeneration(const RunJob& task, const std::stop_token& stop) {
  std::shared_ptr<Trainer> trainer;
  {
    MutexLock lock(mu_);
    trainer = trainer_;
  }
  RunEnded ended;
  ended.job = task.job;
  ended.generation = GenerationOf(task.start);
  ended.applied = trainer->applied();
  ended.digest = Bytes(trainer->digest());

  const StatusOr<Assignment> assignment = AssignmentOf(task.start);
  if (!assignment.ok()) {
    ended.outcome = Outcome::kFailed;
    ended.reason = Message(assignment.status());
    return ended;
  }
  phases_.Enter(task.job, "ring");
  const StatusOr<std::unique_ptr<ring::Link>> link =
      ConnectRing(task.start, assignment->position, stop);
  if (!link.ok()) {
    ended.outcome = stop.stop_requested() ? Outcome::kStopped : Outcome::kPeerLost;
    ended.reason = Message(link.status());
    ended.peer = NeighbourNamed(task.start, assignment->position.rank, ended.reason);
    return ended;
  }
  spdlog::info("ring joined: job={} generation={} of={}", task.job.value(),
               ended.generation.ToString(), assignment->position.size);
  phases_.Enter(task.job, "first_step");
  const auto upload = std::make_shared<CheckpointUpload>(coordinator_, task.job, ended.generation,
                                                         options_.name.value());
  RunObserver observer(&task.start, &phases_, &post_);
  SetRunning(true);
  const RunResult result = trainer->Run(*assignment, {link->get(), upload, &observer}, stop);
  SetRunning(false);
  phases_.Clear();
  ended.outcome = OutcomeOf(result.end);
  if (result.link_error == absl::StatusCode::kAborted && WaitForStop(stop, kBetterReasonLimit)) {
    ended.outcome = Outcome::kStopped;
  }
  ended.applied = result.applied;
  ended.digest = Bytes(result.digest);
  ended.reason = result.reason;
  ended.peer = NeighbourNamed(task.start, assignment->position.rank, ended.reason);
  ended.manifest_sha256 = result.manifest_sha256;
  LogEnd(task.job, ended.generation, result);
  return ended;
}

void JobRunner::SetRunning(bool running) {
  MutexLock lock(mu_);
  running_ = running;
}

std::stop_token JobRunner::BeginRun() {
  MutexLock lock(mu_);
  return run_.get_token();
}

void JobRunner::Do(const RunJob& task) { post_(RunGeneration(task, BeginRun())); }

void JobRunner::Do(const DropJob& task) {
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
  spdlog::info("job dropped: job={}", task.job.value());
  options_.ended(task.job);
}

}  // namespace ringmaster::worker
