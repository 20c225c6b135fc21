#include "coordinator/service/status_board.h"

#include <catch2/catch.hpp>

namespace ringmaster::coordinator {
namespace {

JobView ViewOf(const std::string& id, uint64_t step) {
  JobView view;
  view.status.set_job_id(id);
  view.status.set_step(step);
  return view;
}

struct Counter : StatusBoard::Listener {
  void OnChange() override { ++changes; }
  int changes = 0;
};

TEST_CASE("StatusBoard: a listener hears of its job only, and of the end") {
  StatusBoard board;
  board.Publish(ViewOf("j0001", 0));
  const auto counter = std::make_shared<Counter>();
  REQUIRE(board.Listen("j0001", counter));
  board.Publish(ViewOf("j0001", 1));
  board.Publish(ViewOf("j0002", 1));
  CHECK(counter->changes == 1);
  board.Close();
  CHECK(counter->changes == 2);
  CHECK(board.closed());
}

TEST_CASE("StatusBoard: listeners are limited, and those that are gone leave room") {
  StatusBoard board;
  board.Publish(ViewOf("j0001", 0));
  std::vector<std::shared_ptr<Counter>> counters;
  for (int i = 0; i < 1000; ++i) {
    counters.push_back(std::make_shared<Counter>());
    REQUIRE(board.Listen("j0001", counters.back()));
  }
  const auto more = std::make_shared<Counter>();
  CHECK_FALSE(board.Listen("j0001", more));
  counters.pop_back();
  CHECK(board.Listen("j0001", more));
}

TEST_CASE("StatusBoard: a job that is forgotten is nowhere, and who listens is told") {
  StatusBoard board;
  board.Publish(ViewOf("j0001", 1));
  board.Publish(ViewOf("j0002", 1));
  const auto counter = std::make_shared<Counter>(), late = std::make_shared<Counter>();
  REQUIRE(board.Listen("j0001", counter));
  board.Forget("j0001");
  CHECK(counter->changes == 1);
  CHECK(board.Find("j0001") == nullptr);
  CHECK(board.Listen("j0001", late));  // it was there a moment ago
  board.NoteLogLines("j0001", 3);
  CHECK(board.List(1'000'000).jobs_size() == 1);
  board.Forget("j0001");
}

TEST_CASE("StatusBoard: a list is newest first and ends where the bytes end") {
  StatusBoard board;
  for (const char* id : {"j9998", "j9999", "j10000"}) board.Publish(ViewOf(id, 1));
  const v1::ListResponse all = board.List(1000);
  REQUIRE(all.jobs_size() == 3);
  CHECK(all.jobs(0).job_id() == "j10000");
  CHECK(all.jobs(2).job_id() == "j9998");
  CHECK(board.List(40).jobs_size() == 2);
  CHECK(board.Find("j1") == nullptr);
  // Those that have not ended are listed before those that have, and the newest always.
  for (const char* id : {"j9999", "j10000"}) {
    JobView ended = ViewOf(id, 1);
    ended.status.set_finished_unix_ms(1);
    board.Publish(ended);
  }
  const v1::ListResponse some = board.List(50);
  REQUIRE(some.jobs_size() == 2);
  CHECK(some.jobs(0).job_id() == "j10000");
  CHECK(some.jobs(1).job_id() == "j9998");
}

TEST_CASE("StatusBoard: a list has neither layers of models nor names of a script's files") {
  StatusBoard board;
  JobView view = ViewOf("j0001", 1);
  view.status.mutable_spec()->mutable_model()->add_layers();
  view.status.mutable_spec()->mutable_script()->set_file("train.py");
  view.status.mutable_spec()->mutable_script()->add_files()->set_path("train.py");
  board.Publish(view);
  const v1::ListResponse list = board.List(1000);
  REQUIRE(list.jobs_size() == 1);
  CHECK(list.jobs(0).spec().model().layers().empty());
  CHECK(list.jobs(0).spec().script().files().empty());
  CHECK(list.jobs(0).spec().script().file() == "train.py");
  CHECK(board.Find("j0001")->status.spec().script().files_size() == 1);
}

TEST_CASE("StatusBoard: all workers are listed, devices where the bytes are enough") {
  StatusBoard board;
  v1::ListWorkersResponse workers;
  for (const char* name : {"a", "b", "c"}) {
    v1::WorkerStatus& worker = *workers.add_workers();
    worker.set_name(name);
    worker.add_devices()->set_name(std::string(100, 'x'));
  }
  board.PublishWorkers(workers);
  CHECK(board.Workers(1000).SerializeAsString() == workers.SerializeAsString());
  const v1::ListWorkersResponse cut = board.Workers(250);
  REQUIRE(cut.workers_size() == 3);
  CHECK(cut.workers(1).devices_size() == 1);
  CHECK(cut.workers(2).devices_size() == 0);
}

TEST_CASE("StatusBoard: lost log lines stand in every view from then on") {
  StatusBoard board;
  board.NoteLogLines("j0001", 3);  // no such job: nothing happens
  CHECK(board.Find("j0001") == nullptr);
  board.Publish(ViewOf("j0001", 1));
  const auto counter = std::make_shared<Counter>();
  REQUIRE(board.Listen("j0001", counter));
  board.NoteLogLines("j0001", 3);
  CHECK(board.Find("j0001")->status.log_lines_lost() == 3);
  CHECK(board.Find("j0001")->status.step() == 1);
  board.Publish(ViewOf("j0001", 2));
  CHECK(board.Find("j0001")->status.log_lines_lost() == 3);
  board.NoteLogLines("j0001", 3);  // new lines, none lost
  CHECK(counter->changes == 3);
}

TEST_CASE("StatusBoard: trouble of the store is told at once, and when it begins and ends") {
  StatusBoard board;
  std::vector<bool> told;
  board.NoteStoreTrouble("full");
  board.WatchStore([&](bool trouble) { told.push_back(trouble); });
  CHECK(told == std::vector{true});
  board.NoteStoreTrouble("broken");
  board.NoteStoreTrouble("");
  board.NoteStoreTrouble("");
  board.NoteStoreTrouble("full");
  CHECK(told == std::vector{true, false, true});
}

}  // namespace
}  // namespace ringmaster::coordinator
