// What the logic remembers of workers that are gone, and for how long.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <variant>

#include "coordinator/logic/logic.h"
#include "tests/support/cluster_messages.h"

namespace ringmaster::coordinator {
namespace {

// In term 1, for so many workers at a time.
struct Reign {
  explicit Reign(size_t max_workers) : logic({.max_workers = max_workers}) {
    (void)logic.Restore({.term = 1}, {});
  }
  Actions Attach(SessionId session, const std::string& name, uint64_t highest_term) {
    (void)logic.Step(SessionOpened{session}, {});
    v1::WorkerMessage message;
    *message.mutable_attach() = testing::MakeAttach(name);
    message.mutable_attach()->set_highest_term(highest_term);
    return logic.Step(WorkerSaid{session, message}, {});
  }
  Actions Leave(SessionId session) {
    v1::WorkerMessage message;
    message.mutable_leaving();
    return logic.Step(WorkerSaid{session, message}, {});
  }
  void Break(SessionId session) { (void)logic.Step(SessionClosed{session, "gone"}, {}); }

  Logic logic;
};

template <typename A>
size_t Count(const Actions& actions) {
  return static_cast<size_t>(std::ranges::count_if(
      actions, [](const Action& action) { return std::holds_alternative<A>(action); }));
}

}  // namespace

TEST_CASE("Workers: who obeyed this term is known by name, of those that are gone not for ever") {
  Reign reign(2);
  CHECK(Count<Admit>(reign.Attach(SessionId{1}, "stays", 0)) == 1);
  uint64_t session = 1;
  for (int i = 0; i < 7; ++i) {
    const SessionId next{++session};
    CHECK(Count<Admit>(reign.Attach(next, fmt::format("w{}", i), 0)) == 1);
    reign.Break(next);
  }
  // Its session broke: it was told of the term by this coordinator.
  CHECK(Count<Admit>(reign.Attach(SessionId{++session}, "w0", 1)) == 1);
  reign.Break(SessionId{session});
  // The ninth name: of the eight before it the attached one stays.
  CHECK(Count<Admit>(reign.Attach(SessionId{++session}, "w7", 0)) == 1);
  reign.Break(SessionId{session});
  reign.Break(SessionId{1});
  CHECK(Count<Admit>(reign.Attach(SessionId{++session}, "stays", 1)) == 1);
  const Actions unknown = reign.Attach(SessionId{++session}, "w0", 1);
  CHECK(Count<Admit>(unknown) == 0);
  CHECK(Count<RaiseTerm>(unknown) == 1);
}

TEST_CASE("Workers: a drain ends with the process that was drained, where that says that it ends") {
  Reign reign(2);
  (void)reign.Attach(SessionId{1}, "a", 0);
  (void)reign.Attach(SessionId{2}, "b", 0);
  (void)reign.logic.Step(DrainAsked{"a"}, {});
  CHECK(Count<SaveDrain>(reign.Leave(SessionId{2})) == 0);  // it was not drained
  const Actions left = reign.Leave(SessionId{1});
  const auto saved = std::ranges::find_if(
      left, [](const Action& action) { return std::holds_alternative<SaveDrain>(action); });
  REQUIRE(saved != left.end());
  CHECK(std::get<SaveDrain>(*saved).record.worker == "a");
  CHECK(std::get<SaveDrain>(*saved).record.incarnation.empty());
  // Nothing is left of it to end.
  const Actions resumed = reign.logic.Step(DrainAsked{"a", true}, {});
  const auto reply = std::ranges::find_if(
      resumed, [](const Action& action) { return std::holds_alternative<Reply>(action); });
  REQUIRE(reply != resumed.end());
  CHECK(std::get<Reply>(*reply).refusal.word == "WORKER_NOT_FOUND");
}

}  // namespace ringmaster::coordinator
