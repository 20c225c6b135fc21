#include "cli/progress_display.h"

#include <catch2/catch.hpp>

#include "tests/cli/job_statuses.h"

namespace ringmaster::cli {
namespace {

using namespace std::chrono_literals;

TEST_CASE("ProgressDisplay: away from a terminal lines are seconds apart, but a new state is not") {
  ProgressDisplay display(Output::kTable, Terminal::Plain());
  const ProgressDisplay::Clock::time_point start{1h};
  CHECK(display.Update(Queued(), start) == "QUEUED  needs 3 workers, 1 is free: 2 are missing\n");
  CHECK(display.Update(Running(), start + 1s) ==
        "RUNNING  step 120/282  43%  512 samples/s  loss 1.2500  accuracy 50.0%  ETA 20s\n");
  CHECK(display.Update(Running(), start + 2s).empty());
  CHECK_FALSE(display.Update(Running(), start + 6s).empty());
  CHECK_FALSE(display.Update(Succeeded(), start + 6s).empty());
}

TEST_CASE("ProgressDisplay: json holds nothing back and is one object a line") {
  ProgressDisplay display(Output::kJson, Terminal::Plain());
  const ProgressDisplay::Clock::time_point start{1h};
  for (int i = 0; i < 2; ++i) {
    const std::string text = display.Update(Running(), start);
    CHECK(text.front() == '{');
    CHECK(text.find('\n') == text.size() - 1);
  }
}

}  // namespace
}  // namespace ringmaster::cli
