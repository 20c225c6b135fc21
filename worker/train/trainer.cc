#include "worker/train/trainer.h"

#include <utility>

#include "common/log.h"
#include "common/numeric/float_mode.h"
#include "worker/backend/failure.h"
#include "worker/train/shard_work.h"
#include "worker/train/state_check.h"
#include "worker/train/state_exchange.h"
#include "worker/train/step_loop.h"
#include "worker/train/training_job.h"

namespace ringmaster::worker {

Trainer::Trainer(std::unique_ptr<TrainingJob> job, KnownShard known)
    : job_(std::move(job)), known_(std::move(known)) {}

Trainer::~Trainer() = default;

StatusOr<std::unique_ptr<Trainer>> Trainer::Prepare(
    const JobId& job, const v1::ResolvedJob& resolved, std::shared_ptr<const Dataset> dataset,
    Backend* backend, const std::vector<CoreOptions>& cores, const TrainerOptions& options) {
  const DefaultFloatMode float_mode;
  RING_ASSIGN_OR_RETURN(
      std::unique_ptr<TrainingJob> built,
      BuildTrainingJob(job, resolved, std::move(dataset), backend, cores, options));
  // Of drawn weights, whatever the job begins with: a job that resumes another one does not read
  // that, and has the other one's known shard.
  KnownShard known;
  RING_ASSIGN_OR_RETURN(known.sha256, KnownShardSha256(built.get()));
  if (resolved.workers().mix() != v1::MIX_NONE) {
    RING_ASSIGN_OR_RETURN(known.seconds, KnownShardSeconds(built.get()));
  }
  RING_RETURN_IF_ERROR(built->TakeInit());
  return std::unique_ptr<Trainer>(new Trainer(std::move(built), std::move(known)));
}

void Trainer::TakeClassMaps(const ClassMaps& maps) {
  MutexLock lock(job_->state_mu);
  *job_->resolved.mutable_result()->mutable_class_maps() = maps;
}

void Trainer::BeginWith(const ClassMaps& maps) {
  TakeClassMaps(maps);
  MutexLock lock(job_->state_mu);
  job_->state->digest = job_->FirstDigest();
}

uint64_t Trainer::applied() const { return job_->state->step; }
const Sha256Digest& Trainer::digest() const { return job_->state->digest; }
PlannedMemory Trainer::planned_memory() const { return job_->planned; }
size_t Trainer::largest_payload() const {
  return ring::AllReduce::LargestPayload(job_->options.reduce);
}
Status Trainer::whole() const {
  MutexLock lock(job_->state_mu);
  const bool differs = FailureOf(job_->lost_state) == v1::FAILURE_CODE_STATE_DIFFERS;
  return differs ? job_->lost_state : absl::OkStatus();
}
Status Trainer::Check() { return CheckStateOnCores(job_.get()); }
Pulse Trainer::pulse() const { return job_->pulse.Read(); }

StatusOr<std::unique_ptr<StateSource>> Trainer::Open(uint64_t step, Follows follows) const {
  return OpenState(job_.get(), step, follows);
}

Status Trainer::BringToHost() {
  MutexLock lock(job_->state_mu);
  return job_->BringToHost();
}

void Trainer::MakeRoom() {
  room_.emplace(EmptyState(*job_));
  job_->totals.integers.Touch();
}

State Trainer::TakeRoom() {
  if (!room_) return EmptyState(*job_);
  State room = *std::move(room_);
  room_.reset();
  return room;
}

std::unique_ptr<IncomingState> Trainer::Expect() {
  return std::make_unique<IncomingState>(TakeRoom(), job_->options.piece_bytes);
}

bool Trainer::follows() const {
  return Follower::Can(*job_) && job_->TrainedBytes() >= job_->options.follow_bytes;
}

std::shared_ptr<Follower> Trainer::Follow(const std::string& source) {
  follower_.reset();
  follower_ = std::make_shared<Follower>(job_.get(), TakeRoom(), source);
  return follower_;
}

Status Trainer::Adopt(IncomingState* incoming, const Sha256Digest& digest) {
  const DefaultFloatMode float_mode;
  return Annotate(AdoptState(incoming, digest, job_.get()), "job " + job_->id.value());
}

Status Trainer::Restore(const Checkpoint& checkpoint) {
  const DefaultFloatMode float_mode;
  room_.reset();
  return Annotate(AdoptCheckpoint(checkpoint, job_.get()), "job " + job_->id.value());
}

StatusOr<Checkpoint> Trainer::MakeCheckpoint() const {
  RING_RETURN_IF_ERROR(CheckStateOnCores(job_.get()));
  RING_ASSIGN_OR_RETURN(std::vector<CheckpointFile> files, CopyState(*job_->state));
  return Seal(FactsOf(*job_), std::move(files));
}

void Trainer::ForgetCopies(uint64_t step) { job_->checkpoints.Forget(step); }

Status Trainer::CheckAssignment(const Assignment& assignment, const RunPeers& peers) const {
  const ring::Position& position = assignment.position;
  if (assignment.start_step != applied()) {
    return FailedPrecondition("generation {} starts at step {}, this worker holds the state of {}",
                              assignment.generation.ToString(), assignment.start_step, applied());
  }
  if (assignment.start_step == 0 && job_->lacks_init) {
    return FailedPrecondition(
        "the job begins with other weights, which this worker has not read: a job that resumes "
        "another one goes on from a checkpoint");
  }
  if (position.rank >= position.size || (position.size > 1) != (peers.link != nullptr)) {
    return Internal("place {} in a ring of {} with{} a link", position.rank, position.size,
                    peers.link == nullptr ? "out" : "");
  }
  for (size_t i = 0; i < assignment.shards.size(); ++i) {
    const uint32_t shard = assignment.shards[i];
    const bool ascending = i == 0 || assignment.shards[i - 1] < shard;
    if (shard < job_->spec().shards() && ascending) continue;
    return Internal("shard {} of a job with {} shards, or not in ascending order", shard,
                    job_->spec().shards());
  }
  return absl::OkStatus();
}

RunResult Trainer::Refused(const Status& status) const {
  RunResult result;
  DescribeState(*job_, &result);
  result.reason = Message(status);
  result.code = FailureOf(status);
  return result;
}

RunResult Trainer::Run(const Assignment& assignment, const RunPeers& peers,
                       const std::stop_token& stop) {
  const DefaultFloatMode float_mode;
  room_.reset();
  const Status status = CheckAssignment(assignment, peers);
  if (!status.ok()) {
    if (follower_ != nullptr) follower_->GiveUp();
    return Refused(status);
  }
  // While the job follows, pieces come to the weights' places; they are refreshed when it is whole.
  if (job_->weights_stale && job_->follower == nullptr) {
    if (const Status refreshed = job_->RefreshWeights(); !refreshed.ok()) return Refused(refreshed);
  }
  spdlog::info("run begins: job={} generation={} rank={} of={} shards={} step={}{}",
               job_->id.value(), assignment.generation.ToString(), assignment.position.rank,
               assignment.position.size, assignment.shards.size(), assignment.start_step,
               job_->follower != nullptr ? " follows" : "");
  return StepLoop(job_.get(), assignment, peers, stop).Run();
}

}  // namespace ringmaster::worker
