#include "coordinator/daemon.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "common/job/resolve.h"
#include "common/rpc/rpc_status.h"
#include "common/sha256.h"
#include "tests/coordinator/cluster.h"
#include "tests/support/fake_checkpoint.h"
#include "tests/support/fake_worker.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::coordinator {
namespace {

using testing::FakeCheckpoint;
using testing::FakeWorker;
using Kind = FakeWorker::Kind;

v1::JobSpec SpecFor(uint32_t workers) {
  v1::JobSpec spec = testing::MakeSpec();
  spec.mutable_workers()->set_min(workers);
  return spec;
}

// More than one piece, and less than the limit of the job's uploads.
FakeCheckpoint CheckpointOf(const FakeWorker& worker, uint64_t step) {
  return testing::MakeCheckpoint(step, Hex(job::ResultDigest(worker.job().result())),
                                 Hex(FakeWorker::DigestOf(step)), 1'200'000);
}

// Asks the coordinator again and again, so that time passes, until `is` or the limit of a test.
template <typename Is>
bool Eventually(Cluster& cluster, Is is) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!is() && std::chrono::steady_clock::now() < end) (void)cluster.StateOf("nobody");
  return is();
}

// Two workers at the start of one job.
struct Pair {
  explicit Pair(Cluster& cluster) : a(cluster.NewChannel(), "a"), b(cluster.NewChannel(), "b") {
    REQUIRE(a.Attach().ok());
    REQUIRE(b.Attach().ok());
    job_id = cluster.Submit(SpecFor(2), "key");
    REQUIRE(testing::BringToStart({&a, &b}).ok());
  }
  // Both hold the same snapshot, a writes it.
  grpc::Status Deliver(Cluster& cluster, uint64_t step) {
    return Deliver(cluster, a.BeginUpload(step));
  }
  grpc::Status Deliver(Cluster& cluster, const v1::CheckpointBegin& begin) {
    const FakeCheckpoint checkpoint = CheckpointOf(a, begin.step());
    for (FakeWorker* each : {&a, &b}) {
      each->SaySnapshot(begin.step(), checkpoint.manifest_sha256());
    }
    v1::CheckpointReceipt receipt;
    return testing::Upload(cluster.channel(), begin, checkpoint, &receipt);
  }
  FakeWorker a, b;
  std::string job_id;
};

TEST_CASE("Daemon: what it writes is for its own user alone, whatever the umask") {
  const mode_t before = umask(0);
  const TemporaryFolder folder;
  Flags flags;
  flags.listen = {"127.0.0.1", 0};
  flags.data_dir = folder.path() + "/data";
  const auto daemon = Daemon::Create(flags);
  umask(before);
  REQUIRE(daemon.ok());
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
    CHECK((static_cast<unsigned>(entry.status().permissions()) & 0077) == 0);
  }
}

TEST_CASE("Daemon: two workers run a whole job, whose checkpoint can be read back") {
  Cluster cluster;
  Pair pair(cluster);
  CHECK(pair.job_id == "j0001");
  REQUIRE(pair.a.start().ring_size() == 2);
  CHECK(pair.a.start().ring(0).name() == "a");
  CHECK(pair.a.start().ring(0).incarnation() == testing::MakeIncarnation("a"));
  CHECK(pair.a.start().ring(1).shards_size() == 2);
  CHECK(pair.a.start().SerializeAsString() == pair.b.start().SerializeAsString());

  for (FakeWorker* worker : {&pair.a, &pair.b}) worker->SayProgress(4);
  const v1::JobStatus running =
      cluster.Await(pair.job_id, [](const v1::JobStatus& s) { return s.step() == 4; });
  CHECK(running.state() == v1::JOB_STATE_RUNNING);
  CHECK(running.total_steps() == 10);
  CHECK(running.metrics(0).value() == 0.2);
  CHECK(running.workers(0).ring_bytes() == 4000);

  const FakeCheckpoint checkpoint = CheckpointOf(pair.a, 10);
  REQUIRE(pair.Deliver(cluster, 10).ok());
  pair.b.SayFinished(10, "");
  pair.a.SayFinished(10, checkpoint.manifest_sha256());
  CHECK(pair.a.Hear(Kind::kRelease).ok());
  CHECK(pair.b.Hear(Kind::kRelease).ok());

  const v1::JobStatus done = cluster.AwaitState(pair.job_id, v1::JOB_STATE_SUCCEEDED);
  CHECK(done.step() == 10);
  CHECK(done.checkpoint().sha256() == checkpoint.manifest_sha256());
  CHECK(done.checkpoint().path() == cluster.folder() + "/checkpoints/j0001/step-00000010");

  Limited context;
  v1::GetCheckpointRequest request;
  request.set_job_id(pair.job_id);
  const auto reader = cluster.jobs().GetCheckpoint(&context, request);
  std::map<std::string, std::string> files;
  for (v1::FilePiece piece; reader->Read(&piece);) files[piece.name()] += piece.data();
  CHECK(reader->Finish().ok());
  const std::map<std::string, std::string> sent(checkpoint.files.begin(), checkpoint.files.end());
  CHECK(files == sent);
}

TEST_CASE("Daemon: of a job that is removed its id alone stays, also after a restart") {
  Cluster cluster;
  Pair pair(cluster);
  REQUIRE(pair.Deliver(cluster, 10).ok());
  const std::string path = cluster.Get("j0001").checkpoint().path();
  pair.b.SayFinished(10, "");
  pair.a.SayFinished(10, CheckpointOf(pair.a, 10).manifest_sha256());
  REQUIRE(cluster.AwaitState("j0001", v1::JOB_STATE_SUCCEEDED).step() == 10);
  REQUIRE(std::filesystem::exists(path));
  const auto remove = [&] {
    Limited context;
    v1::RemoveRequest request;
    request.set_job_id("j0001");
    v1::RemoveResponse response;
    return ErrorReason(cluster.jobs().Remove(&context, request, &response));
  };
  CHECK(remove().empty());
  CHECK(remove() == "JOB_NOT_FOUND");
  CHECK(Eventually(cluster, [&] { return !std::filesystem::exists(path); }));
  // What a crash would have left.
  const std::string log = cluster.folder() + "/logs/j0001";
  for (const std::string& left : {path, log}) std::filesystem::create_directories(left);
  cluster.Start();
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK_FALSE(std::filesystem::exists(log));
  CHECK_THAT(cluster.Submit(SpecFor(2), "key"), Catch::Contains("was removed; use a new key"));
  CHECK(cluster.Submit(SpecFor(2), "other") == "j0002");
}

TEST_CASE("Daemon: a worker that dies leaves the ring, and the other one has all shards") {
  Cluster cluster;
  v1::JobSpec spec = SpecFor(1);
  FakeWorker a(cluster.NewChannel(), "a"), b(cluster.NewChannel(), "b");
  REQUIRE(a.Attach().ok());
  REQUIRE(b.Attach().ok());
  const std::string job_id = cluster.Submit(spec, "key");
  REQUIRE(testing::BringToStart({&a, &b}).ok());
  for (FakeWorker* worker : {&a, &b}) worker->SayProgress(3);
  cluster.Await(job_id, [](const v1::JobStatus& s) { return s.step() == 3; });
  const std::string ticket = a.start().ticket();
  CHECK(ticket.size() == 16);
  CHECK(ticket == b.start().ticket());
  b.Die();
  REQUIRE(a.AnswerFence().ok());
  REQUIRE(a.AwaitStart().ok());
  CHECK(a.start().ticket().size() == 16);
  CHECK(a.start().ticket() != ticket);  // b fetches no state any more
  CHECK(a.start().start_step() == 3);
  CHECK(a.start().digest() == FakeWorker::DigestOf(3));
  REQUIRE(a.start().ring_size() == 1);
  CHECK(a.start().ring(0).shards_size() == 4);
  CHECK(a.start().ring(0).holds());
  const v1::JobStatus status =
      cluster.Await(job_id, [](const v1::JobStatus& s) { return s.regroup_count() == 1; });
  CHECK(status.state() == v1::JOB_STATE_RUNNING);
  REQUIRE(status.regroups_size() == 1);
  CHECK(status.regroups(0).lost(0) == "b");
  CHECK_THAT(status.regroups(0).reason(), Catch::StartsWith("worker b was lost at step 3: "));
}

TEST_CASE(
    "Daemon: a silent worker's session is ended after its lease, though its connection stands") {
  Options options;
  options.silence = std::chrono::milliseconds(100);
  options.lease = std::chrono::milliseconds(300);
  Cluster cluster(options);
  FakeWorker worker(cluster.NewChannel(), "a");
  REQUIRE(worker.Attach().ok());
  const std::string job_id = cluster.Submit(SpecFor(1), "key");
  CHECK(Eventually(cluster, [&] { return cluster.StateOf("a").empty(); }));
  const grpc::Status end = worker.End();
  CHECK(end.error_code() == grpc::DEADLINE_EXCEEDED);
  CHECK(ErrorReason(end) == "LEASE_EXPIRED");
}

TEST_CASE("Daemon: a living worker's name is refused, and free once its session is gone") {
  Cluster cluster;
  v1::Attach other = testing::MakeAttach("a");
  other.set_incarnation(testing::MakeIncarnation("other"));
  {
    FakeWorker first(cluster.NewChannel(), "a");
    REQUIRE(first.Attach().ok());
    FakeWorker second(cluster.NewChannel(), "a");
    CHECK_FALSE(second.Attach(other).ok());
    const grpc::Status refused = second.End();
    CHECK(refused.error_code() == grpc::ALREADY_EXISTS);
    CHECK(ErrorReason(refused) == "WORKER_NAME_TAKEN");
    CHECK(first.End().ok());
  }
  FakeWorker third(cluster.NewChannel(), "a");
  CHECK(third.Attach(other).ok());
}

TEST_CASE("Daemon: only the newest checkpoints are kept and listed") {
  Cluster cluster;
  Pair pair(cluster);
  for (const uint64_t step : {1, 2, 3, 4}) REQUIRE(pair.Deliver(cluster, step).ok());
  Limited context;
  v1::ListCheckpointsRequest request;
  request.set_job_id(pair.job_id);
  v1::ListCheckpointsResponse response;
  REQUIRE(cluster.jobs().ListCheckpoints(&context, request, &response).ok());
  REQUIRE(response.checkpoints_size() == 3);
  CHECK(response.checkpoints(0).step() == 2);
  const std::string folder = cluster.folder() + "/checkpoints/j0001/";
  CHECK(Eventually(cluster, [&] { return !std::filesystem::exists(folder + "step-00000001"); }));
  CHECK(std::filesystem::exists(folder + "step-00000002"));
}

TEST_CASE(
    "Daemon: an old checkpoint stays while a newer one is damaged, and verify names that one") {
  Cluster cluster;
  Pair pair(cluster);
  for (const uint64_t step : {1, 2, 3}) REQUIRE(pair.Deliver(cluster, step).ok());
  testing::Damage(cluster.Get(pair.job_id).checkpoint());
  REQUIRE(pair.Deliver(cluster, 4).ok());
  const auto verify = [&](std::optional<uint64_t> step, v1::VerifyCheckpointsResponse* response) {
    Limited context;
    v1::VerifyCheckpointsRequest request;
    request.set_job_id(pair.job_id);
    if (step) request.set_step(*step);
    return cluster.jobs().VerifyCheckpoints(&context, request, response);
  };
  v1::VerifyCheckpointsResponse all;
  CHECK(Eventually(cluster, [&] { return verify({}, &all).ok() && all.checkpoints_size() == 4; }));
  REQUIRE(all.checkpoints_size() == 4);
  for (const int whole : {0, 1, 3}) CHECK(all.checkpoints(whole).error().empty());
  CHECK(all.checkpoints(2).checkpoint().step() == 3);
  CHECK_THAT(all.checkpoints(2).error(), Catch::Contains("model.safetensors has SHA-256"));
  v1::VerifyCheckpointsResponse one;
  REQUIRE(verify(4, &one).ok());
  REQUIRE(one.checkpoints_size() == 1);
  CHECK(one.checkpoints(0).checkpoint().step() == 4);
  CHECK(ErrorReason(verify(7, &one)) == "CHECKPOINT_NOT_FOUND");
}

TEST_CASE("Daemon: a job goes on from the newest checkpoint of another one that is whole") {
  Cluster cluster;
  FakeWorker a(cluster.NewChannel(), "a");
  REQUIRE(a.Attach().ok());
  const std::string first = cluster.Submit(SpecFor(1), "key");
  REQUIRE(testing::BringToStart({&a}).ok());
  v1::CheckpointReceipt receipt;
  for (const uint64_t step : {4, 6}) {
    const FakeCheckpoint checkpoint = CheckpointOf(a, step);
    a.SaySnapshot(step, checkpoint.manifest_sha256());
    REQUIRE(testing::Upload(cluster.channel(), a.BeginUpload(step), checkpoint, &receipt).ok());
  }
  v1::SubmitRequest request;
  request.set_resume_job(first);
  request.set_idempotency_key("again");
  const auto resume = [&](v1::SubmitResponse* response) {
    Limited context;
    return cluster.jobs().Submit(&context, request, response);
  };
  v1::SubmitResponse submitted;
  CHECK(ErrorReason(resume(&submitted)) == "JOB_NOT_ENDED");
  REQUIRE(cluster.Cancel(first).ok());
  REQUIRE(a.Hear(Kind::kCancel).ok());
  v1::WorkerMessage stopped;
  stopped.mutable_job_stopped()->set_job_id(first);
  a.Say(stopped);
  REQUIRE(a.Hear(Kind::kRelease).ok());
  testing::Damage(cluster.Get(first).checkpoint());
  REQUIRE(resume(&submitted).ok());
  CHECK(submitted.job_id() == "j0002");
  a.SayHeartbeat("");

  REQUIRE(testing::BringToStart({&a}).ok());
  CHECK(a.job_id() == "j0002");
  CHECK(a.start().start_step() == 4);
  CHECK(a.start().digest() == FakeWorker::DigestOf(4));
  CHECK(a.start().restore().job_id() == first);
  CHECK(a.start().restore().step() == 4);
  CHECK(a.start().restore().manifest_sha256() == CheckpointOf(a, 4).manifest_sha256());
  const v1::JobStatus status =
      cluster.Await("j0002", [](const v1::JobStatus& s) { return s.has_resumed_from(); });
  CHECK(status.resumes_job() == first);
  CHECK(status.resumed_from().step() == 4);
  Limited context;
  v1::ListEventsRequest list;
  list.set_job_id("j0002");
  v1::ListEventsResponse events;
  REQUIRE(cluster.jobs().ListEvents(&context, list, &events).ok());
  std::string skipped;
  for (const v1::Event& event : events.events()) {
    if (event.type() == "CheckpointSkipped") skipped = event.message();
  }
  CHECK_THAT(skipped, Catch::StartsWith("the checkpoint of step 6 cannot be used: ") &&
                          Catch::Contains("model.safetensors has SHA-256"));
}

TEST_CASE("Daemon: a drained worker leaves its job, and takes others once it is resumed") {
  Cluster cluster;
  CHECK(ErrorReason(cluster.Drain("a", false)) == "WORKER_NOT_FOUND");
  FakeWorker a(cluster.NewChannel(), "a"), b(cluster.NewChannel(), "b");
  REQUIRE(a.Attach().ok());
  REQUIRE(b.Attach().ok());
  const std::string job_id = cluster.Submit(SpecFor(1), "key");
  REQUIRE(testing::BringToStart({&a, &b}).ok());
  std::string leaves;
  REQUIRE(cluster.Drain("b", false, &leaves).ok());
  CHECK(leaves == job_id);
  CHECK(cluster.StateOf("b") == "DRAINING");
  for (FakeWorker* worker : {&a, &b}) REQUIRE(worker->AnswerFence().ok());
  REQUIRE(a.AwaitStart().ok());
  CHECK(a.start().ring_size() == 1);
  REQUIRE(b.Hear(Kind::kRelease).ok());
  b.SayHeartbeat("");
  CHECK(Eventually(cluster, [&] { return cluster.StateOf("b") == "DRAINED"; }));
  REQUIRE(cluster.Drain("b", true, &leaves).ok());
  CHECK(leaves.empty());
  CHECK(b.AnswerInspect().ok());  // it joins again
  CHECK(Eventually(cluster, [&] { return cluster.StateOf("b") == "JOINING"; }));
}

TEST_CASE("Daemon: cancelling stops the workers first") {
  Cluster cluster;
  Pair pair(cluster);
  REQUIRE(cluster.Cancel(pair.job_id).ok());
  for (FakeWorker* worker : {&pair.a, &pair.b}) {
    REQUIRE(worker->Hear(Kind::kCancel).ok());
    v1::WorkerMessage stopped;
    stopped.mutable_job_stopped()->set_job_id(pair.job_id);
    worker->Say(stopped);
  }
  CHECK(cluster.AwaitState(pair.job_id, v1::JOB_STATE_CANCELLED).reason() ==
        "cancelled on request");
  CHECK(pair.a.Hear(Kind::kRelease).ok());
  const grpc::Status again = cluster.Cancel(pair.job_id);
  CHECK(again.error_code() == grpc::FAILED_PRECONDITION);
  CHECK(ErrorReason(again) == "JOB_ENDED");
}

TEST_CASE("Daemon: submitting is idempotent by key and spec") {
  Cluster cluster;
  v1::SubmitResponse first, again, other;
  REQUIRE(cluster.Submit(SpecFor(1), "key", &first).ok());
  REQUIRE(cluster.Submit(SpecFor(1), "key", &again).ok());
  CHECK(again.job_id() == first.job_id());
  CHECK(again.existed());
  const grpc::Status reused = cluster.Submit(SpecFor(2), "key", &other);
  CHECK(reused.error_code() == grpc::ALREADY_EXISTS);
  CHECK(ErrorReason(reused) == "IDEMPOTENCY_KEY_REUSED");
}

TEST_CASE("Daemon: bad requests get their reason") {
  Cluster cluster;
  v1::JobSpec spec = SpecFor(1);
  spec.set_batch(2);
  v1::SubmitResponse response;
  const grpc::Status invalid = cluster.Submit(spec, "key", &response);
  CHECK(invalid.error_code() == grpc::INVALID_ARGUMENT);
  CHECK(ErrorReason(invalid) == "INVALID_JOB");

  CHECK(ErrorReason(cluster.Cancel("j9")) == "JOB_NOT_FOUND");
  Limited context;
  v1::GetCheckpointRequest request;
  request.set_job_id(cluster.Submit(SpecFor(1), "other"));
  v1::FilePiece piece;
  const auto reader = cluster.jobs().GetCheckpoint(&context, request);
  CHECK_FALSE(reader->Read(&piece));
  CHECK(ErrorReason(reader->Finish()) == "CHECKPOINT_NOT_FOUND");
}

TEST_CASE("Daemon: what was acknowledged is there after a restart") {
  Cluster cluster;
  std::vector<std::string> ids;
  std::vector<v1::Attach> holding;
  std::vector<std::unique_ptr<FakeWorker>> workers;
  {
    Pair pair(cluster);
    ids.push_back(pair.job_id);
    holding = {pair.a.AttachHolding(), pair.b.AttachHolding()};
    REQUIRE(pair.Deliver(cluster, 4).ok());
    for (int i = 0; i < 20; ++i) {
      ids.push_back(cluster.Submit(SpecFor(3), "key" + std::to_string(i)));
    }
    cluster.Start();
  }
  Limited context;
  v1::ListResponse list;
  REQUIRE(cluster.jobs().List(&context, {}, &list).ok());
  REQUIRE(list.jobs_size() == 21);
  CHECK(list.jobs(0).job_id() == "j0021");  // newest first
  const v1::JobStatus first = cluster.Get(ids[0]);
  CHECK(first.state() == v1::JOB_STATE_RUNNING);
  CHECK_THAT(first.reason(), Catch::StartsWith("the coordinator restarted: waits for a, b"));
  CHECK(first.checkpoint().step() == 4);
  CHECK(std::filesystem::exists(first.checkpoint().path()));
  CHECK(cluster.Get(ids[20]).state() == v1::JOB_STATE_QUEUED);

  v1::SubmitResponse again;
  REQUIRE(cluster.Submit(SpecFor(3), "key3", &again).ok());
  CHECK(again.existed());
  CHECK(again.job_id() == ids[4]);

  for (const v1::Attach& held : holding) {
    workers.push_back(std::make_unique<FakeWorker>(cluster.NewChannel(), held.name()));
    const auto attached = workers.back()->Attach(held);
    REQUIRE(attached.ok());
    CHECK(attached->attached().term() == 2);
    CHECK(attached->attached().resume());
  }
  const v1::JobStatus adopted =
      cluster.Await(ids[0], [](const v1::JobStatus& s) { return s.reason().empty(); });
  CHECK(adopted.state() == v1::JOB_STATE_RUNNING);
  CHECK(adopted.generation().term() == 1);
  CHECK(adopted.regroup_count() == 0);
}

TEST_CASE("Daemon: workers are listed, and why tells what is missing") {
  Cluster cluster;
  FakeWorker worker(cluster.NewChannel(), "a");
  REQUIRE(worker.Attach().ok());
  const std::string job_id = cluster.Submit(SpecFor(4), "key");
  Limited context, other;
  v1::ListWorkersResponse workers;
  REQUIRE(cluster.jobs().ListWorkers(&context, {}, &workers).ok());
  REQUIRE(workers.workers_size() == 1);
  CHECK(workers.workers(0).state() == "FREE");
  CHECK(workers.workers(0).memory_per_core() == uint64_t{1} << 30);
  // It is in the queue when its submission is answered, and what it waits for is found next.
  (void)cluster.Await(job_id, [](const v1::JobStatus& s) { return !s.reason().empty(); });
  v1::WhyRequest request;
  request.set_job_id(job_id);
  v1::WhyResponse why;
  REQUIRE(cluster.jobs().Why(&other, request, &why).ok());
  CHECK(why.reason() == "needs 4 workers of one numerics class, 1 is attached and free: 3 missing");
  CHECK(why.history_size() == 1);
  REQUIRE(why.advice_size() == 2);
  CHECK(why.advice(0) == "start 3 more workers like a");
}

TEST_CASE("Daemon: a worker's devices are listed as it last reported them") {
  Cluster cluster;
  FakeWorker worker(cluster.NewChannel(), "a");
  REQUIRE(worker.Attach().ok());
  v1::WorkerMessage message;
  v1::DeviceFigures& device = *message.mutable_device_report()->add_devices();
  device.set_name("NVIDIA Abacus");
  device.set_power(43'210);
  worker.Say(message);
  v1::ListWorkersResponse workers;
  REQUIRE(Eventually(cluster, [&] {
    Limited context;
    return cluster.jobs().ListWorkers(&context, {}, &workers).ok() && workers.workers_size() == 1 &&
           workers.workers(0).devices_size() == 1;
  }));
  CHECK(workers.workers(0).devices(0).ShortDebugString() == device.ShortDebugString());
}

TEST_CASE("Daemon: events, phases of starting and why a worker's step failed the job") {
  Cluster cluster;
  Pair pair(cluster);
  for (FakeWorker* worker : {&pair.a, &pair.b}) {
    for (const char* phase : {"ring", "first_step", "done"}) {
      v1::WorkerMessage message;
      message.mutable_phase_entered()->set_job_id(pair.job_id);
      message.mutable_phase_entered()->set_phase(phase);
      worker->Say(message);
    }
    worker->SayProgress(3);
  }
  const v1::JobStatus running =
      cluster.Await(pair.job_id, [](const v1::JobStatus& s) { return s.step() == 3; });
  REQUIRE(running.start_phases_size() == 2);
  CHECK(running.start_phases(1).name() == "first_step");
  CHECK(running.start_phases(1).done());
  pair.b.SayFailed("step 3: the loss of shard 2 is not finite (NaN or infinity)",
                   v1::FAILURE_CODE_NOT_FINITE);
  cluster.AwaitState(pair.job_id, v1::JOB_STATE_FAILED);
  cluster.Start();  // all of it is durable

  Limited context, other;
  v1::WhyRequest request;
  request.set_job_id(pair.job_id);
  v1::WhyResponse why;
  REQUIRE(cluster.jobs().Why(&context, request, &why).ok());
  CHECK(why.failure().word() == "NOT_FINITE");
  CHECK(why.failure().worker() == "b");
  CHECK(why.failure().step() == 3);
  REQUIRE(why.advice_size() == 1);
  CHECK_THAT(why.advice(0), Catch::Contains("Take a smaller learning rate"));

  v1::ListEventsRequest list;
  list.set_job_id(pair.job_id);
  list.set_after(2);
  v1::ListEventsResponse events;
  REQUIRE(cluster.jobs().ListEvents(&other, list, &events).ok());
  REQUIRE(events.events_size() > 2);
  CHECK(events.events(0).number() == 3);
  CHECK(events.events(0).unix_ms() > 0);
  const v1::Event& last = events.events(events.events_size() - 1);
  CHECK(last.type() == "Finished");
  CHECK(last.severity() == "error");
  CHECK(events.events(events.events_size() - 2).type() == "WorkerFailed");
}

TEST_CASE("Daemon: the best checkpoint stays when newer ones push the others out") {
  Cluster cluster;
  Pair pair(cluster);
  for (const uint64_t step : {1, 2, 3, 4, 5}) {
    v1::CheckpointBegin begin = pair.a.BeginUpload(step);
    begin.set_metric(step == 1 ? 0.75 : 0.5);
    begin.set_best(step == 1);
    REQUIRE(pair.Deliver(cluster, begin).ok());
  }
  const std::string folder = cluster.folder() + "/checkpoints/j0001/";
  CHECK(Eventually(cluster, [&] { return !std::filesystem::exists(folder + "step-00000002"); }));
  cluster.Start();
  const v1::JobStatus status = cluster.Get(pair.job_id);
  CHECK(status.checkpoint().step() == 5);
  CHECK(status.best_checkpoint().step() == 1);
  CHECK(status.best_checkpoint().metric() == 0.75);
  CHECK(std::filesystem::exists(status.best_checkpoint().path()));
}

TEST_CASE("Daemon: watchers that read nothing delay nobody, and are ended by a stop") {
  Cluster cluster;
  Pair pair(cluster);
  std::vector<std::unique_ptr<Limited>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::JobStatus>>> stuck;
  v1::WatchRequest request;
  request.set_job_id(pair.job_id);
  for (int i = 0; i < 50; ++i) {
    contexts.push_back(std::make_unique<Limited>());
    stuck.push_back(cluster.jobs().Watch(contexts.back().get(), request));
  }
  for (uint64_t step = 1; step <= 9; ++step) {
    pair.a.SayProgress(step);
    pair.b.SayProgress(step);
  }
  CHECK(cluster.Await(pair.job_id, [](const v1::JobStatus& s) { return s.step() == 9; }).step() ==
        9);
  cluster.daemon().Stop();
  v1::JobStatus last;
  while (stuck[0]->Read(&last)) {
  }
  CHECK(stuck[0]->Finish().error_code() == grpc::UNAVAILABLE);
}

TEST_CASE("Daemon: stops cleanly again and again, with streams open") {
  Cluster cluster;
  for (int i = 0; i < 10; ++i) {
    FakeWorker worker(cluster.NewChannel(), "a");
    REQUIRE(worker.Attach().ok());
    cluster.Start();
    CHECK(worker.End().error_code() == grpc::UNAVAILABLE);
  }
}

TEST_CASE("Daemon: a second one is refused the folder, and the port") {
  Cluster cluster;
  Flags flags;
  flags.listen = {"127.0.0.1", 0};
  flags.data_dir = cluster.folder();
  CHECK(Daemon::Create(flags).status().code() == absl::StatusCode::kFailedPrecondition);
  const TemporaryFolder other;
  flags.data_dir = other.path();
  flags.listen = *ParseAddress(cluster.daemon().address(), "address");
  const auto refused = Daemon::Create(flags);
  REQUIRE_FALSE(refused.ok());
  CHECK_THAT(Message(refused.status()), Catch::Contains(cluster.daemon().address()));
}

}  // namespace
}  // namespace ringmaster::coordinator
