#include "coordinator/shell/executor.h"

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/cluster_messages.h"

namespace ringmaster::coordinator {
namespace {

using std::chrono::milliseconds;
using Names = std::vector<std::string>;

// ---- groups of writes ---------------------------------------------------------------------------

// Commits that end when the test says so; the drains of workers stand for whatever is written.
struct Desk : Committer {
  bool Begin(std::vector<const StoreWrite*> writes) override {
    if (busy) return false;
    Names& names = begun.emplace_back();
    for (const StoreWrite* write : writes)
      names.push_back(std::get<SaveDrain>(*write).record.worker);
    return true;
  }
  void Write(const std::string& worker) {
    commits.Write(SaveDrain{{worker, ""}}, [this](const Status& status, const StoreWrite& write) {
      const std::string& name = std::get<SaveDrain>(write).record.worker;
      done.push_back(name + (status.ok() ? "" : " failed"));
    });
  }
  void Then(const std::string& what) {
    commits.Then([this, what] { done.push_back(what); });
  }
  void Show(const std::string& what, const std::string& how) {
    commits.ThenShow(what, [this, how] { done.push_back(how); });
  }
  // Of the newest commit: that worker's drain fails.
  void End(const std::string& fails = "") {
    std::vector<Status> statuses;
    for (const std::string& worker : begun.back()) {
      statuses.push_back(worker == fails ? absl::UnavailableError("full") : absl::OkStatus());
    }
    commits.Ended(statuses);
  }

  bool busy = false;
  std::vector<Names> begun;
  Names done;
  GroupCommit commits{this};
};

TEST_CASE("GroupCommit: what comes while one commit lasts is the next one") {
  Desk desk;
  CHECK(desk.commits.idle());
  desk.Write("a");
  CHECK(desk.commits.Begin());
  for (const char* const worker : {"b", "c", "d"}) desk.Write(worker);
  CHECK(desk.commits.Begin());
  CHECK(desk.begun == std::vector<Names>{{"a"}});
  desk.End();
  CHECK(desk.begun == std::vector<Names>{{"a"}, {"b", "c", "d"}});
  CHECK(desk.done == Names{"a"});
  desk.End();
  CHECK(desk.done == Names{"a", "b", "c", "d"});
  CHECK(desk.commits.idle());
}

TEST_CASE("GroupCommit: what is to be done waits for the writes before it, and for no later one") {
  Desk desk;
  desk.Write("a");
  desk.Then("send");
  desk.commits.Begin();
  desk.Then("show");
  desk.Write("b");
  desk.Then("answer");
  CHECK(desk.done.empty());
  desk.End();
  CHECK(desk.done == Names{"a", "send", "show"});
  desk.End();
  CHECK(desk.done == Names{"a", "send", "show", "b", "answer"});
}

TEST_CASE("GroupCommit: a write that fails is told, and holds nothing back") {
  Desk desk;
  for (const char* const worker : {"a", "b", "c"}) desk.Write(worker);
  desk.Then("answer");
  desk.commits.Begin();
  desk.End("b");
  CHECK(desk.done == Names{"a", "b failed", "c", "answer"});
}

TEST_CASE("GroupCommit: what follows from a write comes behind what was decided before") {
  Desk desk;
  desk.commits.Write(SaveDrain{{"a", ""}}, [&](const Status&, const StoreWrite&) {
    CHECK(desk.commits.goes_on());
    CHECK_FALSE(desk.commits.idle());
    desk.Then("follows");
  });
  desk.Then("decided before");
  desk.commits.Begin();
  desk.End();
  CHECK(desk.done == Names{"decided before", "follows"});
}

TEST_CASE("GroupCommit: a commit that cannot begin now is begun by the next event") {
  Desk desk;
  desk.busy = true;
  desk.Write("a");
  CHECK_FALSE(desk.commits.Begin());
  desk.Write("b");
  desk.busy = false;
  CHECK(desk.commits.Begin());
  CHECK(desk.begun == std::vector<Names>{{"a", "b"}});
}

TEST_CASE("GroupCommit: of what is shown the newest alone waits, behind the writes before it") {
  Desk desk;
  desk.Write("a");
  desk.Show("j0001", "of a");
  desk.commits.Begin();  // it hangs
  for (const char* const how : {"old", "older", "newer"}) {
    desk.Show("j0001", how);
    desk.Show("j0002", std::string("other ") + how);
  }
  desk.Write("b");
  desk.Show("j0001", "of b");
  desk.End();
  CHECK(desk.done == Names{"a", "of a", "other newer"});
  desk.Show("j0001", "while b is written");
  desk.End();
  CHECK(desk.done == Names{"a", "of a", "other newer", "b", "of b", "while b is written"});
  CHECK(desk.commits.idle());
}

TEST_CASE("GroupCommit: what was shown before an answer stays before it") {
  Desk desk;
  desk.Write("a");
  desk.commits.Begin();
  desk.Show("j0001", "cancelled");
  desk.Then("answer");
  desk.Write("b");
  desk.Show("j0001", "over");
  desk.End();
  CHECK(desk.done == Names{"a", "cancelled", "answer"});
  desk.End();
  CHECK(desk.done == Names{"a", "cancelled", "answer", "b", "over"});
}

TEST_CASE("GroupCommit: what follows from a write is shown once") {
  Desk desk;
  desk.commits.Write(SaveDrain{{"a", ""}}, [&](const Status&, const StoreWrite&) {
    desk.Show("j0001", "first");
    desk.Show("j0001", "second");
  });
  desk.commits.Begin();
  desk.End();
  CHECK(desk.done == Names{"second"});
  desk.Write("b");
  desk.Show("j0001", "third");
  desk.commits.Begin();
  desk.End();
  CHECK(desk.done == Names{"second", "b", "third"});
}

// ---- the executor -------------------------------------------------------------------------------

// Every seam, on this thread; commits end when the test says so.
struct Stage : Clock, Committer, Streams, Board, Log, Disk {
  Moment Read() const override { return {now, 0}; }
  bool Begin(std::vector<const StoreWrite*> writes) override {
    count = writes.size();
    saved.clear();
    for (const StoreWrite* write : writes) {
      const auto* save = std::get_if<SaveJob>(write);
      if (save == nullptr) continue;
      saved = StateName(save->record.status.state());
      if (save->record.resolved) saved += ", resolved";
    }
    return true;
  }
  void Send(const coordinator::Send&) override { told.emplace_back("send"); }
  void Admit(const coordinator::Admit& action) override {
    told.push_back("admit " + action.worker);
  }
  void Close(const CloseSession&) override { told.emplace_back("close"); }
  void Admit(const AdmitUpload&) override {}
  void End(const EndUpload&) override {}
  void End(const EndBench&) override {}
  void Publish(JobView view) override {
    told.push_back("show " + StateName(view.status.state()));
    shown.push_back(std::move(view.status));
  }
  void Forget(const std::string& job) override { told.push_back("forget " + job); }
  void PublishWorkers(v1::ListWorkersResponse) override {}
  void NoteStoreTrouble(const std::string& trouble) override {
    told.emplace_back(trouble.empty() ? "trouble is over" : "trouble");
  }
  void Write(Severity severity, const std::string&) override {
    if (severity == Severity::kError) told.emplace_back("error");
  }
  void Find(const FindCheckpoint&) override { told.emplace_back("find"); }
  void Place(UploadId) override {}
  void Read(const ReadBack&) override {}
  void Remove(const std::string&) override {}
  void RemoveJob(const std::string& job) override { told.push_back("remove files of " + job); }

  Stage() {
    Restored restored;
    restored.term = 1;
    executor.Restore(restored);
  }
  void Ask(const Event& event) {
    executor.Ask(event, {now, {}}, [this](const Reply& reply) {
      told.push_back("reply " + (reply.refusal.status.ok() ? reply.job_id : reply.refusal.word));
    });
  }
  void Submit(const std::string& key = "key", uint32_t min = 1) {
    SubmitAsked asked;
    *asked.submit.mutable_spec() = testing::MakeSpec();
    asked.submit.mutable_spec()->mutable_workers()->set_min(min);
    asked.submit.set_idempotency_key(key);
    Ask(asked);
  }
  void Attach(SessionId session, const std::string& worker) {
    executor.Handle(SessionOpened{session}, {now, {}});
    WorkerSaid said{session, {}};
    *said.message.mutable_attach() = testing::MakeAttach(worker);
    executor.Handle(said, {now, {}});
  }
  void End(const Status& status = absl::OkStatus()) {
    executor.Written(std::vector<Status>(count, status));
  }
  void Tick() {
    now += milliseconds(600);
    executor.OnTick(now);
  }
  Names Told() { return std::exchange(told, {}); }

  Clock::Time now{1'000'000};
  size_t count = 0;   // of the writes of the newest commit
  std::string saved;  // by the newest commit: a job, in which state
  Names told;
  std::vector<v1::JobStatus> shown;
  Executor executor{{}, {this, this, this, this, this, this}};
};

const Status kFull = absl::UnavailableError("the disk is full");

TEST_CASE("Executor: a submission is answered and shown when it is stored, and not before") {
  Stage stage;
  stage.Submit();
  stage.Tick();
  CHECK(stage.Told().empty());
  stage.End();
  CHECK(stage.Told() == Names{"show QUEUED", "reply j0001", "show QUEUED"});
}

TEST_CASE("Executor: one that cannot be stored is refused, and what comes behind it is not held") {
  Stage stage;
  stage.Submit();
  stage.Ask(CancelAsked{JobId("j0007")});
  stage.End(kFull);
  CHECK(stage.Told() ==
        Names{"error", "trouble", "reply JOB_NOT_FOUND", "reply STORE_UNAVAILABLE"});
}

TEST_CASE("Executor: what waits for a commit keeps its order, sends and answers alike") {
  Stage stage;
  stage.Submit();
  stage.Attach(SessionId{1}, "a");
  CHECK(stage.Told().empty());
  stage.End();
  const Names told = stage.Told();
  REQUIRE(told.size() >= 3);
  CHECK(told[0] == "admit a");
  CHECK(told[1] == "show QUEUED");
  CHECK(told[2] == "reply j0001");
}

TEST_CASE("Executor: a change that cannot be stored is shown when it is, by the tick after it") {
  Stage stage;
  stage.Submit();
  stage.End();
  (void)stage.Told();
  stage.Ask(CancelAsked{JobId("j0001")});
  stage.End(kFull);
  CHECK(stage.Told() == Names{"error", "trouble", "reply STORE_UNAVAILABLE"});
  stage.Tick();  // tries again
  stage.End(kFull);
  CHECK(stage.Told().empty());
  stage.Tick();
  stage.End();
  CHECK(stage.Told() == Names{"show CANCELLED", "trouble is over"});
}

// The first change fails, and the second one is on its way when the first is due again.
TEST_CASE("Executor: an older change is not written behind a newer one") {
  Stage stage;
  stage.Submit();
  stage.End();
  stage.Attach(SessionId{1}, "a");
  CHECK(stage.saved == "STARTING");
  WorkerSaid inspected{SessionId{1}, {}};
  inspected.message.mutable_inspected()->set_job_id("j0001");
  *inspected.message.mutable_inspected()->mutable_facts() = testing::MakeFacts();
  stage.executor.Handle(inspected, {stage.now, {}});
  stage.End(kFull);
  CHECK(stage.saved == "STARTING, resolved");
  stage.Tick();
  stage.End();
  while (!stage.executor.idle()) {
    CHECK(stage.saved != "STARTING");
    stage.End();
  }
}

TEST_CASE("Executor: behind a commit that hangs a job is shown once, as it is then") {
  Stage stage;
  stage.Submit("first", 3);
  stage.End();
  stage.Attach(SessionId{1}, "a");
  stage.Attach(SessionId{2}, "b");
  REQUIRE(stage.executor.idle());
  REQUIRE_FALSE(stage.shown.empty());
  CHECK_THAT(stage.shown.back().reason(), Catch::Contains("2 are attached"));
  stage.Submit("second");
  stage.shown.clear();
  for (const uint64_t session : {1, 2}) {
    stage.executor.Handle(SessionClosed{SessionId{session}, "cut"}, {stage.now, {}});
  }
  CHECK(stage.shown.empty());
  stage.End();
  std::vector<std::string> reasons;
  for (const v1::JobStatus& status : stage.shown) {
    if (status.job_id() == "j0001") reasons.push_back(status.reason());
  }
  REQUIRE(reasons.size() == 1);
  CHECK_THAT(reasons[0], Catch::Contains("0 are attached"));
}

// The cancellation is due to be stored again while the removal is on its way.
TEST_CASE("Executor: a change that could not be stored does not bring a removed job back") {
  Stage stage;
  stage.Submit();
  stage.End();
  stage.Ask(CancelAsked{JobId("j0001")});
  stage.End(kFull);
  (void)stage.Told();
  stage.Ask(RemoveAsked{JobId("j0001"), "user/eva"});
  stage.Tick();
  CHECK(stage.Told().empty());
  stage.End();
  CHECK(stage.saved.empty());
  stage.End();
  CHECK(stage.Told() ==
        Names{"trouble is over", "forget j0001", "remove files of j0001", "reply j0001"});
  CHECK(stage.executor.idle());
}

TEST_CASE("Executor: a removal that cannot be stored is refused, and made when it can") {
  Stage stage;
  stage.Submit();
  stage.End();
  stage.Ask(CancelAsked{JobId("j0001")});
  stage.End();
  (void)stage.Told();
  stage.Ask(RemoveAsked{JobId("j0001"), "user/eva"});
  CHECK(stage.Told().empty());
  stage.End(kFull);
  CHECK(stage.Told() == Names{"error", "trouble", "reply STORE_UNAVAILABLE"});
  stage.Ask(RemoveAsked{JobId("j0001"), "user/eva"});
  CHECK(stage.Told() == Names{"reply REMOVAL_UNDER_WAY"});
  stage.Tick();
  stage.End();
  CHECK(stage.Told() == Names{"trouble is over"});
  stage.End();
  CHECK(stage.Told() == Names{"forget j0001", "remove files of j0001"});
  stage.Ask(RemoveAsked{JobId("j0001"), "user/eva"});
  CHECK(stage.Told() == Names{"reply JOB_NOT_FOUND"});
}

TEST_CASE("Executor: a search that the disk could not make is made at the next tick") {
  Stage stage;
  stage.executor.PutOff({"j0001", {}});
  CHECK(stage.Told().empty());
  stage.Tick();
  CHECK(stage.Told() == Names{"find"});
  stage.Tick();
  CHECK(stage.Told().empty());
}

TEST_CASE("StoreTrouble: it is news once, for each reason, and once when it is over") {
  using Time = StoreTrouble::Time;
  StoreTrouble trouble;
  CHECK_FALSE(trouble.lasts());
  CHECK(trouble.Failed(absl::UnavailableError("full"), Time(100)));
  CHECK_FALSE(trouble.Failed(absl::UnavailableError("full"), Time(700)));
  CHECK(trouble.Failed(absl::UnavailableError("broken"), Time(800)));
  CHECK(trouble.lasts());
  CHECK(trouble.Recent(Time(1200), Time(500)));
  CHECK_FALSE(trouble.Recent(Time(1300), Time(500)));
  CHECK(trouble.End(Time(1600)) == Time(1500));
  CHECK_FALSE(trouble.lasts());
  CHECK_FALSE(trouble.Recent(Time(1600), Time(500)));
  CHECK(trouble.Failed(absl::UnavailableError("broken"), Time(2000)));
}

}  // namespace
}  // namespace ringmaster::coordinator
