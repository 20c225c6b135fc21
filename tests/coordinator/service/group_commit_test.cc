#include "coordinator/service/group_commit.h"

#include <catch2/catch.hpp>
#include <deque>
#include <future>
#include <string>
#include <vector>

#include "tests/support/empty_store.h"

namespace ringmaster::coordinator {
namespace {

// A store whose commits wait until they may end, and which of them were one.
class SlowStore : public testing::EmptyStore {
 public:
  std::vector<std::vector<std::string>> commits;  // the store's thread
  std::vector<std::promise<void>> gates = std::vector<std::promise<void>>(4);
  std::string fails;  // that worker's drain

  std::vector<Status> WriteAll(const std::vector<const StoreWrite*>& writes) override {
    gates.at(commits.size()).get_future().wait();
    commits.emplace_back();
    return Store::WriteAll(writes);
  }
  Status SaveDrain(const DrainRecord& drain) override {
    commits.back().push_back(drain.worker);
    return drain.worker == fails ? absl::UnavailableError("full") : absl::OkStatus();
  }
};

// Its control loop is this thread, which hears of ends when it says so.
struct Desk {
  Desk() { commits.Start(); }
  ~Desk() { commits.Stop(); }
  void Write(const std::string& worker) {
    commits.Write(SaveDrain{{worker, ""}}, [this](const Status& status, const StoreWrite& write) {
      const std::string& name = std::get<SaveDrain>(write).record.worker;
      done.push_back(name + (status.ok() ? "" : " failed"));
    });
  }
  void Then(const std::string& what) {
    commits.Then([this, what] { done.push_back(what); });
  }
  void Open(size_t commit) { store.gates[commit].set_value(); }

  SlowStore store;
  std::vector<std::string> done;
  GroupCommit commits{&store, [](const std::function<void()>&) {}};
};

using Names = std::vector<std::string>;

TEST_CASE("GroupCommit: what comes while one commit lasts is the next one") {
  Desk desk;
  CHECK(desk.commits.idle());
  desk.Write("a");
  desk.commits.Begin();
  for (const char* const worker : {"b", "c", "d"}) desk.Write(worker);
  desk.commits.Begin();
  desk.Open(0);
  desk.Open(1);
  desk.commits.Finish();
  CHECK(desk.store.commits == std::vector<Names>{{"a"}, {"b", "c", "d"}});
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
  desk.Open(0);
  // Behind the first commit the second one begins, which cannot end yet.
  std::promise<void> seen;
  REQUIRE(desk.commits.Post([&] { seen.set_value(); }));
  seen.get_future().wait();
  desk.commits.Collect();
  CHECK(desk.done == Names{"a", "send", "show"});
  desk.Open(1);
  desk.commits.Finish();
  CHECK(desk.done == Names{"a", "send", "show", "b", "answer"});
}

TEST_CASE("GroupCommit: a write that fails is told, and holds nothing back") {
  Desk desk;
  desk.store.fails = "b";
  for (const char* const worker : {"a", "b", "c"}) desk.Write(worker);
  desk.Then("answer");
  desk.Open(0);
  desk.commits.Finish();
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
  desk.Open(0);
  desk.commits.Finish();
  CHECK(desk.done == Names{"decided before", "follows"});
}

}  // namespace
}  // namespace ringmaster::coordinator
