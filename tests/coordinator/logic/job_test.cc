#include "coordinator/logic/job.h"

#include <catch2/catch.hpp>
#include <string>
#include <variant>
#include <vector>

#include "tests/coordinator/logic/fixtures.h"
#include "tests/support/cluster_messages.h"

namespace ringmaster::coordinator {
namespace {

using std::chrono::milliseconds;

// A job on a desk of its own; j0007 of the queue.
struct OneJob {
  Options options;
  Now now{milliseconds(1'000), 1'700'000'000'000};
  Actions actions;
  std::vector<std::string> parents;
  Job::Desk desk{options, now, actions,
                 [](const Run&) { return std::vector<std::string>{"start one more"}; },
                 [this](const std::string& p) { parents.push_back(p); }};
  Job job{desk, StoredJob(7, v1::JOB_STATE_QUEUED)};

  template <typename A>
  std::vector<A> Take() {
    std::vector<A> found;
    for (const Action& action : std::exchange(actions, {})) {
      if (const A* one = std::get_if<A>(&action); one != nullptr) found.push_back(*one);
    }
    return found;
  }
};

TEST_CASE("Job: a state is an event once, with its reason") {
  OneJob one;
  CHECK(one.job.SetState(v1::JOB_STATE_STARTING, "checks the dataset on a"));
  CHECK_FALSE(one.job.SetState(v1::JOB_STATE_STARTING, "checks the dataset on a"));
  CHECK(one.job.state() == v1::JOB_STATE_STARTING);
  const std::vector<Note> notes = one.Take<Note>();
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].subject == "job=j0007");
  CHECK(notes[0].text == "STARTING: checks the dataset on a");
  REQUIRE(one.job.record.events.all().size() == 1);
  CHECK(one.job.record.events.all()[0].type() == event_type::kStateChanged);
  one.job.SetState(v1::JOB_STATE_CANCELLED, "cancelled on request");
  CHECK(one.job.record.events.all()[1].type() == event_type::kCancelled);
}

TEST_CASE("Job: what is stored stands before what is shown") {
  OneJob one;
  one.job.Save();
  REQUIRE(one.actions.size() == 2);
  CHECK(std::holds_alternative<SaveJob>(one.actions[0]));
  CHECK(std::holds_alternative<PublishJob>(one.actions[1]));
}

TEST_CASE("Job: a move in the queue is no event, and is shown ten times a second at most") {
  OneJob one, head;
  head.job.record.status.set_reason("waits for 2 workers");
  one.job.Wait("needs 3 workers");
  CHECK(one.Take<PublishJob>().size() == 1);
  const size_t events = one.job.record.events.all().size();
  one.now.steady += milliseconds(50);
  one.job.WaitBehind(head.job, 2);
  CHECK(one.Take<PublishJob>().empty());
  CHECK(one.job.unshown());
  one.now.steady += milliseconds(50);
  one.job.WaitBehind(head.job, 1);
  const std::vector<PublishJob> shown = one.Take<PublishJob>();
  REQUIRE(shown.size() == 1);
  CHECK(shown[0].view.status.reason() ==
        "number 1 in the queue: behind j0007, which waits for 2 workers");
  CHECK(shown[0].view.advice ==
        std::vector<std::string>{"it starts after j0007: `ringctl why j0007` shows what that one "
                                 "waits for",
                                 "`ringctl cancel j0007` makes way for it"});
  CHECK_FALSE(one.job.unshown());
  one.job.WaitBehind(head.job, 1);  // nothing is new
  CHECK(one.actions.empty());
  CHECK(one.job.record.events.all().size() == events);
}

TEST_CASE("Job: what is to be shown at once waits for nothing") {
  OneJob one;
  one.job.Publish();
  CHECK_FALSE(one.job.IsDue());
  one.job.Hurry();
  CHECK(one.job.IsDue());
}

TEST_CASE("Job: advice is shown while it waits, and not after that") {
  OneJob one;
  one.job.set_advice({"start a worker"});
  one.job.Publish();
  CHECK(one.Take<PublishJob>()[0].view.advice.size() == 1);
  one.job.SetState(v1::JOB_STATE_RUNNING, "");
  one.job.Publish();
  CHECK(one.Take<PublishJob>()[0].view.advice.empty());
}

TEST_CASE("Job: of a fold whose state or figures are shown its parent hears, of no move") {
  OneJob one;
  one.job.Publish();
  CHECK(one.parents.empty());
  one.job.record.status.set_fold_of("j0001");
  one.job.Save();
  CHECK(one.parents == std::vector<std::string>{"j0001"});
  one.job.Wait("needs 3 workers");
  CHECK(one.parents.size() == 1);
  one.job.record.status.set_total_steps(10);
  one.job.Publish();
  CHECK(one.parents.size() == 2);
  one.job.record.status.set_step(4);
  one.job.Publish();
  CHECK(one.parents.size() == 3);
  one.job.record.status.add_metrics()->set_value(0.5);
  one.job.Publish();
  CHECK(one.parents.size() == 4);
}

TEST_CASE("Job: a run that is dropped leaves nothing that another ring would decide anew") {
  OneJob one;
  one.job.record.resolved.emplace();
  one.job.record.status.set_total_steps(10);
  one.job.record.status.add_workers();
  one.job.DropRun();
  CHECK_FALSE(one.job.record.resolved);
  CHECK(one.job.record.status.total_steps() == 0);
  CHECK(one.job.record.status.workers().empty());
  // What another job resolved stays.
  one.job.record.resolved.emplace();
  one.job.record.status.set_like_job("j0001");
  one.job.DropRun();
  CHECK(one.job.record.resolved);
}

TEST_CASE("Job: a failure says where, and is told of the worker that caused it") {
  OneJob one;
  v1::CheckpointRef ref;
  ref.set_step(4);
  *one.job.record.status.mutable_checkpoint() = ref;
  one.job.TellFailure({Cause::kDataset, "worker a cannot use the dataset: none", "a", 5});
  CHECK(one.job.record.status.failure().step() == 5);
  CHECK(one.job.record.status.failure().worker() == "a");
  REQUIRE(one.job.record.events.all().size() == 1);
  CHECK(one.job.record.events.all()[0].type() == event_type::kWorkerFailed);
  CHECK(one.Take<Note>().empty());  // the end of the job says it too
}

}  // namespace
}  // namespace ringmaster::coordinator
