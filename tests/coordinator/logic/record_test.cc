#include "coordinator/logic/record.h"

#include <catch2/catch.hpp>

namespace ringmaster::coordinator {
namespace {

TEST_CASE("JobEvents: the oldest are forgotten first, and numbers go on") {
  JobEvents events;
  for (int i = 0; i < 5; ++i) {
    events.Add({event_type::kEvaluated, Severity::kInfo, std::to_string(i)}, 100 + i, 3);
  }
  REQUIRE(events.all().size() == 3);
  CHECK(events.all().front().number() == 3);
  CHECK(events.all().front().message() == "2");
  CHECK(events.all().back().number() == 5);
  CHECK(events.all().back().unix_ms() == 104);
}

TEST_CASE("JobEvents: a copy does not change when the original grows") {
  JobEvents events;
  CHECK(events.empty());
  events.Add({event_type::kSubmitted}, 1, 10);
  const JobEvents copy = events;
  events.Add({event_type::kPlaced}, 2, 10);
  CHECK(copy.all().size() == 1);
  CHECK(events.all().size() == 2);
}

TEST_CASE("JobEvents: decisions are the states, whatever else happened") {
  JobEvents events;
  events.Add({event_type::kSubmitted, Severity::kInfo, "submitted"}, 1, 10);
  events.Add({event_type::kStateChanged, Severity::kInfo, "RUNNING"}, 2, 10);
  events.Add({event_type::kFinished, Severity::kError, "FAILED: lost"}, 3, 10);
  CHECK(events.Decisions() == std::vector<std::string>{"RUNNING", "FAILED: lost"});
}

TEST_CASE("JobEvents: a long message is cut between characters") {
  JobEvents events;
  std::string text = "x";
  for (int i = 0; i < 2'000; ++i) text += "\xc3\xa9";  // two bytes each
  events.Add({event_type::kFinished, Severity::kError, text}, 1, 10);
  const std::string& message = events.all().front().message();
  CHECK(message.size() == 1'999 + 4);
  CHECK_THAT(message, Catch::EndsWith("\xc3\xa9 ..."));
}

}  // namespace
}  // namespace ringmaster::coordinator
