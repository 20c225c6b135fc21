// Checkpoints as workers and others bring them, over a coordinator as it really runs: who may
// upload, and which uploads count.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <vector>

#include "common/job/resolve.h"
#include "common/rpc/rpc_status.h"
#include "common/sha256.h"
#include "tests/coordinator/cluster.h"
#include "tests/support/fake_checkpoint.h"
#include "tests/support/fake_worker.h"

namespace ringmaster::coordinator {
namespace {

using testing::FakeCheckpoint;
using testing::FakeWorker;
using Kind = FakeWorker::Kind;

// A job of two workers that run, and one that is free.
struct UploadCase {
  UploadCase() {
    for (FakeWorker* worker : {&a, &b}) REQUIRE(worker->Attach().ok());
    v1::JobSpec spec = testing::MakeSpec();
    spec.mutable_workers()->set_min(1);
    spec.mutable_workers()->set_max(2);
    job_id = cluster.Submit(spec, "key");
    REQUIRE(testing::BringToStart({&a, &b}).ok());
    REQUIRE(c.Attach().ok());
  }
  FakeCheckpoint CheckpointAt(uint64_t step) const {
    return testing::MakeCheckpoint(step, Hex(job::ResultDigest(a.job().result())),
                                   Hex(FakeWorker::DigestOf(step)), 2'000);
  }
  // Other weights under the same digests, with a manifest that fits them.
  FakeCheckpoint ForgedAt(uint64_t step) const {
    return testing::MakeCheckpoint(step, Hex(job::ResultDigest(a.job().result())),
                                   Hex(FakeWorker::DigestOf(step)), 2'001);
  }
  grpc::Status Upload(const v1::CheckpointBegin& begin, const FakeCheckpoint& checkpoint) const {
    v1::CheckpointReceipt receipt;
    return testing::Upload(cluster.channel(), begin, checkpoint, &receipt);
  }
  std::string ReasonOf(const v1::CheckpointBegin& begin, const FakeCheckpoint& checkpoint) const {
    const grpc::Status status = Upload(begin, checkpoint);
    return status.ok() ? "OK" : ErrorReason(status);
  }
  // What is in the checkpoint folder, without what is being removed from it.
  size_t CountFolders(const std::string& of) const {
    const std::filesystem::path path = cluster.folder() + "/checkpoints/" + of;
    if (!std::filesystem::exists(path)) return 0;
    const auto entries = std::filesystem::directory_iterator(path);
    return static_cast<size_t>(std::distance(begin(entries), end(entries)));
  }
  bool StagingFills() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (CountFolders(".staging") == 0 && std::chrono::steady_clock::now() < end) {
      (void)cluster.StateOf("nobody");
    }
    return CountFolders(".staging") > 0;
  }
  bool StagingEmpties() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (CountFolders(".staging") > 0 && std::chrono::steady_clock::now() < end) {
      (void)cluster.StateOf("nobody");
    }
    return CountFolders(".staging") == 0;
  }

  Cluster cluster;
  FakeWorker a{cluster.NewChannel(), "a"}, b{cluster.NewChannel(), "b"},
      c{cluster.NewChannel(), "c"};
  std::string job_id;
};

TEST_CASE_METHOD(UploadCase, "Uploads: a forged checkpoint is taken from nobody") {
  const FakeCheckpoint forged = ForgedAt(4);
  v1::CheckpointBegin begin = a.BeginUpload(4);
  // Whoever can reach the port: no ticket, one that is guessed, half of one.
  for (const std::string& ticket :
       {std::string(), std::string(16, 'x'), std::string("a"), a.ticket().substr(0, 15)}) {
    begin.set_ticket(ticket);
    const grpc::Status status = Upload(begin, forged);
    CHECK(status.error_code() == grpc::PERMISSION_DENIED);
    CHECK(ErrorReason(status) == "TICKET_NOT_VALID");
  }
  // A worker that does not serve the job, and one that is not the ring's first.
  begin.set_ticket(c.ticket());
  CHECK(ReasonOf(begin, forged) == "NOT_IN_RING");
  begin.set_ticket(b.ticket());
  CHECK(ReasonOf(begin, forged) == "NOT_THE_WRITER");
  // The writer's old generation, one to come, another job.
  begin = a.BeginUpload(4);
  begin.mutable_generation()->set_counter(0);
  CHECK(ReasonOf(begin, forged) == "OLD_GENERATION");
  begin.mutable_generation()->set_counter(99);
  CHECK(ReasonOf(begin, forged) == "UNKNOWN_GENERATION");
  begin = a.BeginUpload(4);
  begin.set_job_id("j0009");
  CHECK(ReasonOf(begin, forged) == "JOB_NOT_FOUND");
  // The writer itself, with another byte than it reported of its snapshot, whatever its manifest.
  const FakeCheckpoint right = CheckpointAt(4);
  a.SaySnapshot(4, right.manifest_sha256());
  CHECK(ReasonOf(a.BeginUpload(4), forged) == "CHECKPOINT_DIFFERS");
  FakeCheckpoint changed = right;
  changed.files[1].second[7] ^= 1;
  CHECK(ReasonOf(a.BeginUpload(4), changed) == "INVALID_CHECKPOINT");
  CHECK_FALSE(cluster.Get(job_id).has_checkpoint());
  CHECK(CountFolders(job_id) == 0);
  CHECK(StagingEmpties());

  // None of it is in the way of the right one.
  b.SaySnapshot(4, right.manifest_sha256());
  CHECK(Upload(a.BeginUpload(4), right).ok());
  CHECK(cluster.Get(job_id).checkpoint().sha256() == right.manifest_sha256());
  CHECK(ReasonOf(a.BeginUpload(4), right) == "OK");  // once more
}

TEST_CASE_METHOD(UploadCase, "Uploads: a writer that lies over its session, too, ends the job") {
  const FakeCheckpoint forged = ForgedAt(4);
  auto upload = std::async(std::launch::async, [&] { return Upload(a.BeginUpload(4), forged); });
  a.SaySnapshot(4, forged.manifest_sha256());
  b.SaySnapshot(4, CheckpointAt(4).manifest_sha256());
  const v1::JobStatus failed = cluster.AwaitState(job_id, v1::JOB_STATE_FAILED);
  CHECK(failed.failure().word() == "CHECKPOINT_DIFFERS");
  CHECK_THAT(failed.reason(), Catch::StartsWith("the snapshots of step 4 differ: worker ") &&
                                  Catch::Contains("worker a") && Catch::Contains("worker b"));
  CHECK_FALSE(failed.has_checkpoint());
  CHECK_FALSE(upload.get().ok());
  CHECK(CountFolders(job_id) == 0);
}

TEST_CASE_METHOD(UploadCase, "Uploads: what was refused does not poison its step") {
  const FakeCheckpoint foreign = testing::MakeCheckpoint(4, std::string(64, '0'), "00");
  const FakeCheckpoint right = CheckpointAt(4);
  for (FakeWorker* worker : {&a, &b}) worker->SaySnapshot(4, right.manifest_sha256());
  CHECK(ReasonOf(a.BeginUpload(4), foreign) == "INVALID_CHECKPOINT");
  CHECK(CountFolders(job_id) == 0);
  CHECK(ReasonOf(a.BeginUpload(4), right) == "OK");
}

TEST_CASE_METHOD(UploadCase, "Uploads: one waits until the other holder reports, or is lost") {
  const FakeCheckpoint first = CheckpointAt(3);
  a.SaySnapshot(3, first.manifest_sha256());
  const v1::CheckpointBegin begin = a.BeginUpload(3);  // of this generation
  auto upload = std::async(std::launch::async, [&] { return Upload(begin, first); });
  REQUIRE(StagingFills());
  for (FakeWorker* worker : {&a, &b}) worker->SayProgress(4);
  cluster.Await(job_id, [](const v1::JobStatus& s) { return s.step() == 4; });
  CHECK(cluster.Get(job_id).checkpoint().step() == 0);
  b.Die();
  REQUIRE(a.AnswerFence().ok());
  REQUIRE(a.AwaitStart().ok());
  CHECK(a.start().start_step() == 4);
  CHECK(upload.get().ok());
  CHECK(cluster.Get(job_id).checkpoint().step() == 3);
}

TEST_CASE_METHOD(UploadCase, "Uploads: an unconfirmed one is not there after a restart") {
  const FakeCheckpoint right = CheckpointAt(4);
  a.SaySnapshot(4, right.manifest_sha256());
  auto upload = std::async(std::launch::async, [&] { return Upload(a.BeginUpload(4), right); });
  const auto staged = [&] { return CountFolders(".staging") == 1; };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!staged() && std::chrono::steady_clock::now() < end) (void)cluster.StateOf("nobody");
  const v1::Attach holds_a = a.AttachHolding();
  v1::Attach holds_b = b.AttachHolding();
  cluster.Start();
  CHECK_FALSE(upload.get().ok());
  CHECK(CountFolders(".staging") == 0);
  CHECK_FALSE(cluster.Get(job_id).has_checkpoint());

  // Both are back and tell it again.
  FakeWorker again_a(cluster.NewChannel(), "a"), again_b(cluster.NewChannel(), "b");
  v1::Snapshot& snapshot = *holds_b.add_snapshots();
  snapshot.set_step(4);
  snapshot.set_manifest_sha256(right.manifest_sha256());
  v1::Attach with_snapshot = holds_a;
  *with_snapshot.add_snapshots() = snapshot;
  REQUIRE(again_a.Attach(with_snapshot).ok());
  REQUIRE(again_b.Attach(holds_b).ok());
  cluster.Await(job_id, [](const v1::JobStatus& s) { return s.reason().empty(); });
  v1::CheckpointBegin begin = a.BeginUpload(4);
  CHECK(ReasonOf(begin, right) == "TICKET_NOT_VALID");  // of a session that is over
  begin.set_ticket(again_a.ticket());
  CHECK(ReasonOf(begin, right) == "OK");
  CHECK(cluster.Get(job_id).checkpoint().step() == 4);
}

TEST_CASE_METHOD(UploadCase, "Uploads: one without end meets its limit, and leaves nothing") {
  const auto stub = v1::Fleet::NewStub(cluster.channel());
  Limited context;
  v1::CheckpointReceipt receipt;
  const auto writer = stub->UploadCheckpoint(&context, &receipt);
  v1::CheckpointUpload message;
  *message.mutable_begin() = a.BeginUpload(4);
  REQUIRE(writer->Write(message));
  v1::FilePiece& piece = *message.mutable_piece();
  piece.set_name("model.safetensors");
  piece.set_data(std::string(1 << 20, 'x'));
  uint64_t sent = 0;
  for (bool open = true; open && sent < (uint64_t{1} << 30); sent += piece.data().size()) {
    piece.set_offset(sent);
    open = writer->Write(message);
  }
  const grpc::Status status = writer->Finish();
  CHECK(status.error_code() == grpc::INVALID_ARGUMENT);
  CHECK_THAT(status.error_message(), Catch::Contains("a checkpoint of this job has at most "));
  CHECK(StagingEmpties());
  // Another one of the same worker takes the place of one that it gave up.
  {
    Limited left;
    const auto given_up = stub->UploadCheckpoint(&left, &receipt);
    message.Clear();
    *message.mutable_begin() = a.BeginUpload(4);
    REQUIRE(given_up->Write(message));
    REQUIRE(StagingFills());  // it is the older one
    const FakeCheckpoint right = CheckpointAt(4);
    for (FakeWorker* worker : {&a, &b}) worker->SaySnapshot(4, right.manifest_sha256());
    CHECK(ReasonOf(a.BeginUpload(4), right) == "OK");
    left.TryCancel();
    (void)given_up->Finish();
  }
  CHECK(StagingEmpties());
}

TEST_CASE("Uploads: one for which the quota has no room is refused by name, and the job goes on") {
  Cluster cluster(Patient(), 1 << 20);
  FakeWorker a(cluster.NewChannel(), "a");
  REQUIRE(a.Attach().ok());
  const std::string job_id = cluster.Submit(testing::MakeSpec(), "key");
  REQUIRE(testing::BringToStart({&a}).ok());
  v1::CheckpointReceipt receipt;
  const FakeCheckpoint checkpoint = testing::MakeCheckpoint(
      4, Hex(job::ResultDigest(a.job().result())), Hex(FakeWorker::DigestOf(4)), 2'000);
  const grpc::Status status =
      testing::Upload(cluster.channel(), a.BeginUpload(4), checkpoint, &receipt);
  CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(ErrorReason(status) == "CHECKPOINT_QUOTA");
  CHECK_THAT(status.error_message(), Catch::Contains("of the 1.0 MiB of --checkpoint-quota"));
  CHECK(cluster.Get(job_id).state() == v1::JOB_STATE_RUNNING);
}

}  // namespace
}  // namespace ringmaster::coordinator
