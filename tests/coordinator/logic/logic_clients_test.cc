// Submissions that are made of another job: what is refused, and what the new job has of the other.
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "common/job/resolve.h"
#include "coordinator/logic/checkpoints.h"
#include "coordinator/logic/logic.h"
#include "tests/coordinator/logic/fixtures.h"
#include "tests/support/cluster_messages.h"

namespace ringmaster::coordinator {
namespace {

v1::ResolvedJob Resolved() {
  const auto resolved = job::Resolve(testing::MakeSpec(), testing::MakeFacts(),
                                     testing::MakeAttach("a").numerics_class());
  REQUIRE(resolved.ok());
  return *resolved;
}

JobRecord MakeRecord(uint64_t number, v1::JobState state) {
  JobRecord record = StoredJob(number, state);
  record.resolved = Resolved();
  return record;
}

CheckpointRecord Checkpoint(uint64_t step) {
  CheckpointRecord record;
  record.job_id = "j0001";
  record.ref.set_step(step);
  record.ref.set_path(fmt::format("/checkpoints/j0001/step-{:08}", step));
  record.ref.set_sha256(std::string(64, '1'));
  return record;
}

// A coordinator that knows j0001.
struct Fixture {
  explicit Fixture(v1::JobState state = v1::JOB_STATE_FAILED) {
    restored.term = 1;
    restored.jobs.push_back(MakeRecord(1, state));
    restored.checkpoints.push_back(Checkpoint(4));
  }

  void Begin() { (void)logic.Restore(restored, {}); }

  void Attach(const std::string& name, const std::string& build) {
    const auto session = static_cast<SessionId>(++sessions);
    (void)logic.Step(SessionOpened{session}, {});
    v1::WorkerMessage message;
    *message.mutable_attach() = testing::MakeAttach(name);
    message.mutable_attach()->mutable_numerics_class()->set_compute_id(build);
    (void)logic.Step(WorkerSaid{session, message}, {});
  }

  // The record that is to be stored, or null; `reply` is the answer when there is none.
  const JobRecord* Ask(const v1::SubmitRequest& submit) {
    inserted.reset();
    reply = {};
    for (const Action& action : logic.Step(SubmitAsked{submit, submitter, sources}, {})) {
      if (const auto* insert = std::get_if<InsertJob>(&action)) inserted = insert->record;
      if (const auto* answer = std::get_if<Reply>(&action)) reply = *answer;
    }
    if (inserted) {
      for (const Action& action : logic.Step(JobInserted{*inserted, absl::OkStatus()}, {})) {
        const auto* send = std::get_if<Send>(&action);
        if (send != nullptr && send->message.has_inspect()) inspect = send->message.inspect();
      }
    }
    return inserted ? &*inserted : nullptr;
  }
  const JobRecord* Resume(const std::string& job_id, const std::string& key = "key") {
    v1::SubmitRequest submit;
    submit.set_resume_job(job_id);
    submit.set_idempotency_key(key);
    return Ask(submit);
  }
  const JobRecord* Like(const std::string& job_id, const std::string& key = "key") {
    v1::SubmitRequest submit;
    submit.set_like_job(job_id);
    submit.set_idempotency_key(key);
    return Ask(submit);
  }

  Restored restored;
  Logic logic{Options{}};
  uint64_t sessions = 0;
  std::string submitter = "local";
  SubmitAsked::Sources sources = SubmitAsked::Sources::kEverybodys;
  std::optional<JobRecord> inserted;
  Reply reply;
  v1::Inspect inspect;  // the newest
};

// j0001 began with the checkpoint of step 3 of j0003, which is not kept any more.
void Tune(Fixture* cluster) {
  v1::ResolvedJob& resolved = *cluster->restored.jobs[0].resolved;
  resolved.mutable_result()->mutable_init()->set_sha256(std::string(64, 'a'));
  v1::CheckpointSource& source = *resolved.mutable_init()->mutable_checkpoint();
  source.set_job_id("j0003");
  source.set_step(3);
  source.set_manifest_sha256(std::string(64, '3'));
}

TEST_CASE("Submit --resume: the new job is resolved as the old one, and says which it was") {
  Fixture cluster;
  cluster.Begin();
  const JobRecord* record = cluster.Resume("j0001");
  REQUIRE(record != nullptr);
  CHECK(record->id() == "j0002");
  CHECK(record->status.resumes_job() == "j0001");
  CHECK(record->status.like_job().empty());
  CHECK(record->status.name() == "test");
  CHECK(record->status.state() == v1::JOB_STATE_QUEUED);
  CHECK(record->status.step() == 0);
  CHECK(record->status.total_steps() == 10);
  CHECK(record->status.spec().SerializeAsString() == testing::MakeSpec().SerializeAsString());
  REQUIRE(record->resolved);
  CHECK(record->resolved->SerializeAsString() == Resolved().SerializeAsString());
  CHECK(record->events.all().back().message() ==
        "submitted as test, to go on from the newest checkpoint of j0001");
}

TEST_CASE("Remove: a job stays while one that begins with its checkpoint is being stored") {
  Fixture cluster;
  cluster.Begin();
  std::optional<JobRecord> inserted;
  std::vector<RemovedJob> removed;
  const auto ask = [&](const Event& event) {
    std::string word;
    for (const Action& action : cluster.logic.Step(event, {})) {
      if (const auto* reply = std::get_if<Reply>(&action)) word = reply->refusal.word;
      if (const auto* insert = std::get_if<InsertJob>(&action)) inserted = insert->record;
      if (const auto* removal = std::get_if<RemoveJobs>(&action)) removed = removal->jobs;
    }
    return word;
  };
  v1::SubmitRequest submit;
  submit.set_idempotency_key("key");
  submit.set_resume_job("j0001");
  (void)ask(SubmitAsked{submit, cluster.submitter, cluster.sources});
  REQUIRE(inserted);
  CHECK(ask(RemoveAsked{JobId("j0001"), "local"}) == "JOB_IN_USE");
  CHECK(ask(JobInserted{*inserted, absl::UnavailableError("full")}) == "STORE_UNAVAILABLE");
  CHECK(removed.empty());
  CHECK(ask(RemoveAsked{JobId("j0001"), "local"}).empty());
  REQUIRE(removed.size() == 1);
  CHECK(removed[0].number == 1);
  CHECK(removed[0].job_id == "j0001");
  CHECK(removed[0].idempotency_key == cluster.restored.jobs[0].idempotency_key);
  CHECK(removed[0].spec_sha256 == cluster.restored.jobs[0].spec_sha256);
  // While it is being removed nobody can refer to it any more.
  CHECK(ask(SubmitAsked{submit, cluster.submitter, cluster.sources}) == "JOB_NOT_FOUND");
}

TEST_CASE("Submit: a fold that is stored while its cross-validation is cancelled is cancelled") {
  Fixture cluster;
  cluster.Begin();
  std::map<std::string, v1::JobState> states;
  const auto step = [&](const Event& event) {
    std::optional<JobRecord> insert;
    for (const Action& action : cluster.logic.Step(event, {})) {
      if (const auto* one = std::get_if<InsertJob>(&action)) insert = one->record;
      if (const auto* save = std::get_if<SaveJob>(&action)) {
        states[save->record.id()] = save->record.status.state();
      }
    }
    return insert;
  };
  v1::SubmitRequest submit;
  submit.set_idempotency_key("key");
  *submit.mutable_spec() = testing::MakeSpec();
  submit.mutable_spec()->mutable_validation()->set_folds(2);
  const auto whole = step(SubmitAsked{submit, cluster.submitter, cluster.sources});
  REQUIRE(whole);
  const auto fold = step(JobInserted{*whole, absl::OkStatus()});
  REQUIRE(fold);
  CHECK(fold->status.fold_of() == whole->id());
  (void)step(CancelAsked{JobId(whole->id())});
  CHECK_FALSE(step(JobInserted{*fold, absl::OkStatus()}));  // no other one follows
  CHECK(states[whole->id()] == v1::JOB_STATE_CANCELLED);
  CHECK(states[fold->id()] == v1::JOB_STATE_CANCELLED);
}

TEST_CASE("Submit: keys of folds are nobody else's") {
  Fixture cluster;
  cluster.Begin();
  CHECK(cluster.Like("j0001", "fold 1 of j0002") == nullptr);
  CHECK(cluster.reply.refusal.word == "INVALID_IDEMPOTENCY_KEY");
}

TEST_CASE("Submit: what a job begins with must be there") {
  Fixture cluster;
  cluster.Begin();
  v1::SubmitRequest submit;
  *submit.mutable_spec() = testing::MakeSpec();
  v1::Init& init = *submit.mutable_spec()->mutable_init();
  submit.set_idempotency_key("key");
  init.set_job("j0009");
  CHECK(cluster.Ask(submit) == nullptr);
  CHECK(cluster.reply.refusal.word == "NO_CHECKPOINT");
  CHECK(Message(cluster.reply.refusal.status) == "init.job: there is no job j0009");
  init.set_job("j0001");
  init.set_step(3);
  CHECK(cluster.Ask(submit) == nullptr);
  CHECK(Message(cluster.reply.refusal.status) ==
        "init.job: job j0001 has no checkpoint of step 3; `ringctl checkpoint ls j0001`");
  init.set_step(4);
  REQUIRE(cluster.Ask(submit) != nullptr);
}

TEST_CASE("Submit --resume: what the job began with is not needed any more") {
  Fixture cluster;
  Tune(&cluster);
  cluster.Begin();
  cluster.Attach("a", testing::MakeAttach("a").numerics_class().compute_id());
  REQUIRE(cluster.Resume("j0001") != nullptr);
  CHECK(cluster.inspect.job_id() == "j0002");
  CHECK(!cluster.inspect.has_init());
}

TEST_CASE("Submit --like: begins with the same checkpoint, whichever job has it") {
  Fixture cluster;
  Tune(&cluster);
  SECTION("it is gone") {
    cluster.Begin();
    CHECK(cluster.Like("j0001") == nullptr);
    CHECK(cluster.reply.refusal.word == "NO_CHECKPOINT");
    CHECK_THAT(Message(cluster.reply.refusal.status),
               Catch::StartsWith("job j0001 began with the checkpoint of step 3 of j0003, which is "
                                 "not kept any more; submit its job file (`ringctl spec j0001`)"));
  }
  SECTION("another job has one of the same bytes") {
    CheckpointRecord same = Checkpoint(3);
    same.ref.set_sha256(std::string(64, '3'));
    cluster.restored.checkpoints.insert(cluster.restored.checkpoints.begin(), same);
    cluster.Begin();
    cluster.Attach("a", testing::MakeAttach("a").numerics_class().compute_id());
    const JobRecord* record = cluster.Like("j0001");
    REQUIRE(record != nullptr);
    CHECK(record->resolved->init().checkpoint().job_id() == "j0001");
    CHECK(cluster.inspect.init().checkpoint().job_id() == "j0001");
    CHECK(cluster.inspect.init().checkpoint().step() == 3);
  }
}

TEST_CASE("Submit: a job that continues another is resolved at once, and bound to one checkpoint") {
  Fixture cluster(v1::JOB_STATE_SUCCEEDED);
  cluster.restored.checkpoints.push_back(Checkpoint(10));
  cluster.Begin();
  v1::SubmitRequest submit;
  submit.set_idempotency_key("key");
  v1::JobSpec& spec = *submit.mutable_spec();
  spec = testing::MakeSpec();
  spec.set_steps(30);
  v1::Continue& wanted = *spec.mutable_continue_();
  const auto refused = [&](const char* word, const std::string& text) {
    CHECK(cluster.Ask(submit) == nullptr);
    CHECK(cluster.reply.refusal.word == word);
    CHECK(cluster.reply.refusal.status.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(Message(cluster.reply.refusal.status), Catch::Contains(text));
  };
  wanted.set_job("j0009");
  refused("JOB_NOT_FOUND", "continue: ");
  wanted.set_job("j0001");
  wanted.set_step(3);
  refused("NO_CHECKPOINT", "continue: job j0001 has no checkpoint of step 3; `ringctl checkpoint");
  wanted.clear_step();
  spec.set_steps(10);
  refused("INVALID_JOB", "steps: expected more than the 10 steps");
  spec.set_steps(30);
  spec.set_seed(5);
  refused("INVALID_JOB", "seed: 5 here, 0 in j0001");
  spec.clear_seed();
  cluster.Attach("a", "another build");
  CHECK(cluster.Ask(submit) == nullptr);
  CHECK(cluster.reply.refusal.word == "NUMERICS_CLASS");
  cluster.Attach("b", "");
  const JobRecord* record = cluster.Ask(submit);
  REQUIRE(record != nullptr);
  CHECK(record->status.continues().job_id() == "j0001");
  CHECK(record->status.continues().step() == 10);
  CHECK(record->status.total_steps() == 30);
  REQUIRE(record->resolved);
  CHECK(record->resolved->result().continues().manifest_sha256() == std::string(64, '1'));
  CHECK(record->events.all().back().message() ==
        "submitted as test, to go on from step 10 of j0001 to step 30");
}

TEST_CASE("Continue: its checkpoint is kept until the job has one of its own") {
  Fixture cluster;
  cluster.restored.checkpoints = {Checkpoint(2), Checkpoint(4), Checkpoint(6)};
  cluster.Begin();
  v1::SubmitRequest submit;
  submit.set_idempotency_key("key");
  *submit.mutable_spec() = testing::MakeSpec();
  submit.mutable_spec()->mutable_continue_()->set_job("j0001");
  submit.mutable_spec()->mutable_continue_()->set_step(2);
  REQUIRE(cluster.Ask(submit) != nullptr);
  // One that was on its way when its job ended comes late.
  const auto removed = [&](const std::string& job, uint64_t step) {
    CheckpointInserted inserted = {};
    inserted.upload = UploadId{1};
    inserted.record = Checkpoint(step);
    inserted.record.job_id = job;
    (void)cluster.logic.Step(inserted, {});
    std::vector<uint64_t> steps;
    for (const Action& action : cluster.logic.Step(CheckpointsRead{job, ""}, {})) {
      const auto* remove = std::get_if<RemoveCheckpoint>(&action);
      if (remove != nullptr) steps.push_back(remove->record.ref.step());
    }
    return steps;
  };
  CHECK(removed("j0001", 8) == std::vector<uint64_t>{});
  CHECK(removed("j0001", 9) == std::vector<uint64_t>{4});
  CHECK(removed("j0002", 5).empty());
  CHECK(removed("j0001", 10) == std::vector<uint64_t>{2, 6});
}

TEST_CASE("Submit: a job that continues another needs one that ended, with a checkpoint") {
  v1::SubmitRequest submit;
  submit.set_idempotency_key("key");
  *submit.mutable_spec() = testing::MakeSpec();
  submit.mutable_spec()->mutable_continue_()->set_job("j0001");
  SECTION("it has not ended") {
    Fixture cluster(v1::JOB_STATE_QUEUED);
    cluster.Begin();
    CHECK(cluster.Ask(submit) == nullptr);
    CHECK(cluster.reply.refusal.word == "JOB_NOT_ENDED");
  }
  SECTION("no checkpoint") {
    Fixture cluster;
    cluster.restored.checkpoints.clear();
    cluster.Begin();
    CHECK(cluster.Ask(submit) == nullptr);
    CHECK(cluster.reply.refusal.word == "NO_CHECKPOINT");
  }
  SECTION("one that was to be continued is not kept any more") {
    Fixture cluster;
    cluster.restored.jobs.push_back(MakeRecord(2, v1::JOB_STATE_FAILED));
    cluster.restored.jobs.back().idempotency_key = "second";
    v1::CheckpointSource& source = *cluster.restored.jobs.back().resolved->mutable_continues();
    source.set_job_id("j0001");
    source.set_step(2);
    cluster.Begin();
    CHECK(cluster.Like("j0002") == nullptr);
    CHECK(cluster.reply.refusal.word == "NO_CHECKPOINT");
  }
}

TEST_CASE("Submit --resume: needs a job that ended with a checkpoint before its last step") {
  SECTION("unknown") {
    Fixture cluster;
    cluster.Begin();
    CHECK(cluster.Resume("j0009") == nullptr);
    CHECK(cluster.reply.refusal.status.code() == absl::StatusCode::kNotFound);
    CHECK(cluster.reply.refusal.word == "JOB_NOT_FOUND");
  }
  SECTION("it has not ended") {
    Fixture cluster(v1::JOB_STATE_QUEUED);
    cluster.Begin();
    CHECK(cluster.Resume("j0001") == nullptr);
    CHECK(cluster.reply.refusal.status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(cluster.reply.refusal.word == "JOB_NOT_ENDED");
  }
  SECTION("no checkpoint") {
    Fixture cluster;
    cluster.restored.checkpoints.clear();
    cluster.Begin();
    CHECK(cluster.Resume("j0001") == nullptr);
    CHECK(cluster.reply.refusal.word == "NO_CHECKPOINT");
    CHECK_THAT(Message(cluster.reply.refusal.status),
               Catch::Contains("`ringctl submit --like j0001`"));
  }
  SECTION("no checkpoint of its own, as it went on from another job") {
    Fixture cluster;
    cluster.restored.checkpoints.clear();
    cluster.restored.jobs[0].status.set_resumes_job("j0000");
    cluster.Begin();
    CHECK(cluster.Resume("j0001") == nullptr);
    CHECK_THAT(Message(cluster.reply.refusal.status), Catch::Contains("it went on from j0000"));
  }
  SECTION("it succeeded") {
    Fixture cluster(v1::JOB_STATE_SUCCEEDED);
    cluster.restored.checkpoints.push_back(Checkpoint(10));
    cluster.Begin();
    CHECK(cluster.Resume("j0001") == nullptr);
    CHECK(cluster.reply.refusal.word == "NO_STEPS_LEFT");
  }
  SECTION("its last step is applied, but it failed after that") {
    Fixture cluster(v1::JOB_STATE_FAILED);
    cluster.restored.checkpoints.push_back(Checkpoint(10));
    cluster.Begin();
    CHECK(cluster.Resume("j0001") != nullptr);
  }
}

TEST_CASE("Submit --like: needs a job that was resolved, in whatever state it is") {
  Fixture cluster(v1::JOB_STATE_SUCCEEDED);
  cluster.restored.jobs.push_back(MakeRecord(2, v1::JOB_STATE_CANCELLED));
  cluster.restored.jobs.back().idempotency_key = "second";
  cluster.restored.jobs.back().resolved.reset();
  cluster.Begin();
  const JobRecord* record = cluster.Like("j0001");
  REQUIRE(record != nullptr);
  CHECK(record->id() == "j0003");
  CHECK(record->status.like_job() == "j0001");
  CHECK(record->status.resumes_job().empty());
  CHECK(record->resolved->SerializeAsString() == Resolved().SerializeAsString());
  CHECK(cluster.Like("j0002", "other") == nullptr);
  CHECK(cluster.reply.refusal.status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(cluster.reply.refusal.word == "NOT_RESOLVED");
}

TEST_CASE("Submit --resume, --like: one attached worker of the numerics class, or none at all") {
  Fixture cluster;
  cluster.Begin();
  cluster.Attach("a", "another build");
  CHECK(cluster.Resume("j0001") == nullptr);
  CHECK(cluster.reply.refusal.status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(cluster.reply.refusal.word == "NUMERICS_CLASS");
  CHECK_THAT(Message(cluster.reply.refusal.status),
             Catch::Contains("worker a differs in compute_id:  and another build"));
  CHECK(cluster.Like("j0001") == nullptr);
  CHECK(cluster.reply.refusal.word == "NUMERICS_CLASS");
  cluster.Attach("b", "");
  CHECK(cluster.Resume("j0001") != nullptr);
}

TEST_CASE(
    "Submit --resume, --like: the same key again is the same job, for another wish an error") {
  Fixture cluster;
  cluster.Begin();
  REQUIRE(cluster.Resume("j0001") != nullptr);
  CHECK(cluster.Resume("j0001") == nullptr);
  CHECK(cluster.reply.refusal.status.ok());
  CHECK(cluster.reply.existed);
  CHECK(cluster.reply.job_id == "j0002");
  CHECK(cluster.Like("j0001") == nullptr);
  CHECK(cluster.reply.refusal.word == "IDEMPOTENCY_KEY_REUSED");
  v1::SubmitRequest both;
  both.set_idempotency_key("both");
  both.set_like_job("j0001");
  *both.mutable_spec() = testing::MakeSpec();
  CHECK(cluster.Ask(both) == nullptr);
  CHECK(cluster.reply.refusal.status.code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Submit: whoever has only their own jobs' weights takes no other job's") {
  Fixture cluster;
  Tune(&cluster);
  cluster.restored.jobs[0].status.set_submitted_by("user/eva");
  cluster.restored.jobs.push_back(MakeRecord(3, v1::JOB_STATE_FAILED));
  cluster.restored.jobs[1].idempotency_key = "third";
  cluster.restored.jobs[1].status.set_submitted_by("local");
  CheckpointRecord begun = Checkpoint(3);
  begun.job_id = "j0003";
  begun.ref.set_sha256(std::string(64, '3'));
  cluster.restored.checkpoints.push_back(begun);
  cluster.Begin();
  v1::SubmitRequest begins, continues;
  for (v1::SubmitRequest* submit : {&begins, &continues}) {
    submit->set_idempotency_key("key");
    *submit->mutable_spec() = testing::MakeSpec();
  }
  begins.mutable_spec()->mutable_init()->set_job("j0001");
  continues.mutable_spec()->mutable_continue_()->set_job("j0001");
  continues.mutable_spec()->set_steps(30);

  const auto refused = [&](const JobRecord* made, const std::string& words) {
    CHECK(made == nullptr);
    CHECK(cluster.reply.refusal.status.code() == absl::StatusCode::kPermissionDenied);
    CHECK(cluster.reply.refusal.word == "NOT_PERMITTED");
    CHECK_THAT(Message(cluster.reply.refusal.status), Catch::StartsWith(words));
  };
  cluster.sources = SubmitAsked::Sources::kOwn;
  cluster.submitter = "user/max";
  refused(cluster.Resume("j0001"), "job j0001 is not user/max's, and this one would have");
  refused(cluster.Ask(begins), "job j0001 is not user/max's");
  refused(cluster.Ask(continues), "job j0001 is not user/max's");
  cluster.submitter = "user/eva";
  refused(cluster.Like("j0001"), "job j0003 is not user/eva's");  // with which her own began
  CHECK(cluster.Resume("j0001", "1") != nullptr);
  CHECK(cluster.Resume("j0003", "2") == nullptr);
  begins.set_idempotency_key("3");
  CHECK(cluster.Ask(begins) != nullptr);
  continues.set_idempotency_key("4");
  CHECK(cluster.Ask(continues) != nullptr);
  cluster.submitter = "user/ann";
  cluster.sources = SubmitAsked::Sources::kEverybodys;
  CHECK(cluster.Like("j0001", "5") != nullptr);
  CHECK(cluster.Resume("j0003", "6") != nullptr);
}

TEST_CASE("Submit --like: what began with no other job's weights is for everybody") {
  Fixture cluster;
  cluster.Begin();
  cluster.sources = SubmitAsked::Sources::kOwn;
  cluster.submitter = "user/max";
  CHECK(cluster.Like("j0001") != nullptr);
}

TEST_CASE("Submit: while a job is being stored its key is taken, and says so") {
  Fixture cluster;
  cluster.Begin();
  v1::SubmitRequest submit;
  submit.set_idempotency_key("key");
  *submit.mutable_spec() = testing::MakeSpec();
  bool inserts = false;
  Reply reply;
  for (int i = 0; i < 2; ++i) {
    for (const Action& action : cluster.logic.Step(SubmitAsked{submit, "local", {}}, {})) {
      inserts |= std::holds_alternative<InsertJob>(action);
      if (const auto* answer = std::get_if<Reply>(&action)) reply = *answer;
    }
  }
  CHECK(inserts);
  CHECK(reply.refusal.word == "SUBMISSION_UNDER_WAY");
  CHECK(reply.refusal.status.code() == absl::StatusCode::kUnavailable);
}

// Whether this worker may fetch checkpoints of a job: `ok`, or the word of the refusal.
std::string Fetch(Fixture* cluster, const std::string& worker, const std::string& job_id) {
  Reply reply;
  for (const Action& action : cluster->logic.Step(FetchAsked{worker, JobId(job_id)}, {})) {
    if (const auto* answer = std::get_if<Reply>(&action)) reply = *answer;
  }
  cluster->reply = reply;
  return reply.refusal.status.ok() ? "ok" : reply.refusal.word;
}

TEST_CASE("Fetch: a worker has its job's checkpoints, and those that job goes on from") {
  Fixture cluster;
  cluster.restored.jobs.push_back(MakeRecord(2, v1::JOB_STATE_SUCCEEDED));
  cluster.restored.jobs.back().idempotency_key = "second";
  SECTION("it resumes j0001") {
    cluster.Begin();
    cluster.Attach("a", testing::MakeAttach("a").numerics_class().compute_id());
    CHECK(Fetch(&cluster, "a", "j0001") == "NOT_PERMITTED");
    CHECK(Message(cluster.reply.refusal.status) ==
          "worker a serves no job, and may fetch checkpoints of that job and of those that it goes "
          "on from or begins with alone, not of job j0001");
    REQUIRE(cluster.Resume("j0001") != nullptr);
  }
  SECTION("it begins with a checkpoint of j0001") {
    v1::InitSource& init = *cluster.restored.jobs[1].resolved->mutable_init();
    cluster.restored.jobs[1].resolved->mutable_result()->mutable_init()->set_sha256(
        std::string(64, 'a'));
    *init.mutable_checkpoint() = SourceOf(Checkpoint(4));
    cluster.Begin();
    cluster.Attach("a", testing::MakeAttach("a").numerics_class().compute_id());
    REQUIRE(cluster.Like("j0002") != nullptr);
    REQUIRE(cluster.inspect.init().checkpoint().job_id() == "j0001");
  }
  REQUIRE(cluster.inspect.job_id() == "j0003");
  CHECK(Fetch(&cluster, "a", "j0003") == "ok");
  CHECK(Fetch(&cluster, "a", "j0001") == "ok");
  CHECK(Fetch(&cluster, "a", "j0002") == "NOT_PERMITTED");
  CHECK_THAT(Message(cluster.reply.refusal.status), Catch::StartsWith("worker a serves job j0003"));
  // It may come back.
  CHECK(Fetch(&cluster, "b", "j0003") == "NOT_ATTACHED");
  CHECK(cluster.reply.refusal.status.code() == absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace ringmaster::coordinator
