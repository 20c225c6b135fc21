// A worker without training: speaks the session stream as the test tells it, message by message.
// Thread-compatible; the stream's own deadline ends a test that would wait forever.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "ringmaster/v1/fleet.grpc.pb.h"
#include "tests/support/cluster_messages.h"

namespace ringmaster::testing {

class FakeWorker {
 public:
  using Kind = v1::CoordinatorMessage::KindCase;

  FakeWorker(const std::shared_ptr<grpc::Channel>& channel, std::string name)
      : name_(std::move(name)), stub_(v1::Fleet::NewStub(channel)) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    stream_ = stub_->Session(&context_);
  }
  ~FakeWorker() { context_.TryCancel(); }

  const std::string& name() const { return name_; }

  // False when the stream is over; End() says why.
  bool Say(const v1::WorkerMessage& message) { return stream_->Write(message); }

  // The next message, which must be of this kind. CheckpointKept may come at any time.
  StatusOr<v1::CoordinatorMessage> Hear(Kind kind) {
    v1::CoordinatorMessage message;
    do {
      if (!stream_->Read(&message)) return Internal("{}: the stream ended", name_);
    } while (message.has_checkpoint_kept() && kind != Kind::kCheckpointKept);
    if (message.kind_case() == kind) return message;
    return Internal("{}: expected message {}, got {{{}}}", name_, static_cast<int>(kind),
                    message.ShortDebugString());
  }

  StatusOr<v1::CoordinatorMessage> Attach() { return Attach(MakeAttach(name_)); }
  StatusOr<v1::CoordinatorMessage> Attach(const v1::Attach& attach) {
    v1::WorkerMessage message;
    *message.mutable_attach() = attach;
    Say(message);
    StatusOr<v1::CoordinatorMessage> attached = Hear(Kind::kAttached);
    if (attached.ok()) ticket_ = attached->attached().ticket();
    return attached;
  }

  // What the process death of a worker looks like.
  void Die() { context_.TryCancel(); }

  // Ends its side, drops what still comes, returns how the coordinator ended the stream.
  grpc::Status End() {
    stream_->WritesDone();
    v1::CoordinatorMessage message;
    while (stream_->Read(&message)) {
    }
    return stream_->Finish();
  }

  void SayHeartbeat(const std::string& job_id) {
    v1::WorkerMessage message;
    message.mutable_heartbeat()->set_job_id(job_id);
    Say(message);
  }

  // ---- the parts of a job ---------------------------------------------------------------------

  Status AnswerInspect() {
    RING_ASSIGN_OR_RETURN(const v1::CoordinatorMessage inspect, Hear(Kind::kInspect));
    job_id_ = inspect.inspect().job_id();
    SayHeartbeat(job_id_);
    v1::WorkerMessage message;
    message.mutable_inspected()->set_job_id(job_id_);
    *message.mutable_inspected()->mutable_facts() = MakeFacts();
    Say(message);
    return absl::OkStatus();
  }

  Status AnswerPrepare() {
    RING_ASSIGN_OR_RETURN(const v1::CoordinatorMessage prepare, Hear(Kind::kPrepare));
    job_ = prepare.prepare().job();
    v1::WorkerMessage message;
    message.mutable_prepared()->set_job_id(job_id_);
    message.mutable_prepared()->add_known_shard_sha256("known");
    message.mutable_prepared()->set_digest(DigestOf(0));
    Say(message);
    return absl::OkStatus();
  }

  Status AnswerFence() {
    RING_ASSIGN_OR_RETURN(const v1::CoordinatorMessage fence, Hear(Kind::kFence));
    generation_ = fence.fence().generation();
    v1::WorkerMessage message;
    message.mutable_fence_ack()->set_job_id(job_id_);
    *message.mutable_fence_ack()->mutable_generation() = generation_;
    message.mutable_fence_ack()->set_applied(applied_);
    message.mutable_fence_ack()->set_digest(DigestOf(applied_));
    Say(message);
    return absl::OkStatus();
  }

  // Then it says that it computes.
  Status AwaitStart() {
    RING_ASSIGN_OR_RETURN(const v1::CoordinatorMessage start, Hear(Kind::kStart));
    start_ = start.start();
    applied_ = start_.start_step();
    v1::WorkerMessage message;
    message.mutable_joined()->set_job_id(job_id_);
    *message.mutable_joined()->mutable_generation() = generation_;
    Say(message);
    return absl::OkStatus();
  }

  void SayProgress(uint64_t applied) {
    applied_ = applied;
    v1::WorkerMessage message;
    v1::Progress& progress = *message.mutable_progress();
    progress.set_job_id(job_id_);
    *progress.mutable_generation() = generation_;
    progress.set_applied(applied);
    AddDigests(std::to_string(applied) + ":" + DigestOf(applied), &progress);
    progress.set_ring_bytes(1'000 * applied);
    v1::Metric& loss = *progress.add_metrics();
    loss.set_split(v1::SAMPLE_SPLIT_TRAIN);
    loss.set_name("loss");
    loss.set_value(1.0 / static_cast<double>(applied + 1));
    loss.set_step(applied);
    progress.set_samples_per_second(100);
    Say(message);
  }

  void SayFinished(uint64_t applied, const std::string& manifest_sha256) {
    v1::WorkerMessage message;
    v1::JobFinished& finished = *message.mutable_job_finished();
    finished.set_job_id(job_id_);
    *finished.mutable_generation() = generation_;
    finished.set_applied(applied);
    finished.set_digest(DigestOf(applied));
    finished.set_manifest_sha256(manifest_sha256);
    Say(message);
  }

  void SaySnapshot(uint64_t step, const std::string& manifest_sha256) {
    v1::WorkerMessage message;
    v1::SnapshotTaken& taken = *message.mutable_snapshot_taken();
    taken.set_job_id(job_id_);
    *taken.mutable_generation() = generation_;
    taken.mutable_snapshot()->set_step(step);
    taken.mutable_snapshot()->set_manifest_sha256(manifest_sha256);
    Say(message);
  }

  void SayFailed(const std::string& reason, v1::FailureCode code) {
    v1::WorkerMessage message;
    v1::JobFailed& failed = *message.mutable_job_failed();
    failed.set_job_id(job_id_);
    *failed.mutable_generation() = generation_;
    failed.set_step(applied_);
    failed.set_reason(reason);
    failed.set_code(code);
    Say(message);
  }

  // What it says of itself when it attaches again and still holds its job.
  [[nodiscard]] v1::Attach AttachHolding() const {
    v1::Attach attach = MakeAttach(name_);
    attach.set_highest_term(generation_.term());
    attach.set_job_id(job_id_);
    *attach.mutable_generation() = generation_;
    attach.set_applied(applied_);
    attach.set_digest(DigestOf(applied_));
    attach.add_known_shard_sha256("known");
    *attach.mutable_class_maps() = start_.class_maps();
    return attach;
  }

  // What begins an upload of its.
  [[nodiscard]] v1::CheckpointBegin BeginUpload(uint64_t step) const {
    v1::CheckpointBegin begin;
    begin.set_job_id(job_id_);
    *begin.mutable_generation() = generation_;
    begin.set_ticket(ticket_);
    begin.set_step(step);
    return begin;
  }

  const std::string& ticket() const { return ticket_; }  // of its session
  // Of the job that it serves, as the coordinator told it.
  const std::string& job_id() const { return job_id_; }
  const v1::ResolvedJob& job() const { return job_; }
  const v1::Generation& generation() const { return generation_; }
  const v1::Start& start() const { return start_; }

  static std::string DigestOf(uint64_t step) { return "state" + std::to_string(step); }

 private:
  const std::string name_;
  const std::unique_ptr<v1::Fleet::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::CoordinatorMessage>> stream_;
  std::string job_id_;
  v1::ResolvedJob job_;
  v1::Generation generation_;
  v1::Start start_;
  std::string ticket_;
  uint64_t applied_ = 0;
};

// Takes workers that got Inspect as far as Start, phase by phase, as real ones would.
inline Status BringToStart(const std::vector<FakeWorker*>& workers) {
  for (FakeWorker* worker : workers) RING_RETURN_IF_ERROR(worker->AnswerInspect());
  for (FakeWorker* worker : workers) RING_RETURN_IF_ERROR(worker->AnswerPrepare());
  for (FakeWorker* worker : workers) RING_RETURN_IF_ERROR(worker->AnswerFence());
  for (FakeWorker* worker : workers) RING_RETURN_IF_ERROR(worker->AwaitStart());
  return absl::OkStatus();
}

}  // namespace ringmaster::testing
