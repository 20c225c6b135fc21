#include "coordinator/logic/run/phase.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "coordinator/logic/run/run.h"
#include "tests/coordinator/logic/fixtures.h"
#include "tests/coordinator/logic/scenario.h"
#include "tests/support/cluster_messages.h"

namespace ringmaster::coordinator {
namespace {

std::string LineOf(const Transition& transition) {
  return fmt::format("{} --> {}: {}", NameOf(transition.from), NameOf(transition.to),
                     transition.why);
}

// The lines of the first state diagram of a document.
std::set<std::string> ReadDiagram(const std::string& path) {
  std::ifstream file(path);
  std::set<std::string> lines;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line == "stateDiagram-v2") {
      inside = true;
    } else if (inside && line == "```") {
      break;
    } else if (inside) {
      lines.insert(line.substr(line.find_first_not_of(' ')));
    }
  }
  return lines;
}

TEST_CASE("Phases: the diagram in docs/life_of_a_job.md has the transitions of the table") {
  std::set<std::string> table;
  for (const Transition& transition : kTransitions) table.insert(LineOf(transition));
  const std::set<std::string> diagram = ReadDiagram(RINGMASTER_LIFE_OF_A_JOB);
  for (const std::string& line : table) {
    INFO("the diagram lacks: " << line);
    CHECK(diagram.contains(line));
  }
  for (const std::string& line : diagram) {
    INFO("the table lacks: " << line);
    CHECK(table.contains(line));
  }
}

TEST_CASE("Phases: no transition stands twice, every phase can be reached, and one is the end") {
  std::set<std::pair<Phase, Phase>> pairs;
  std::set<Phase> reached = {Phase::kNew}, left;
  for (const Transition& transition : kTransitions) {
    INFO(LineOf(transition));
    CHECK(pairs.emplace(transition.from, transition.to).second);
    CHECK(reached.contains(transition.from));  // those that lead there come first
    reached.insert(transition.to);
    left.insert(transition.from);
  }
  CHECK(reached.size() == static_cast<size_t>(Phase::kDone) + 1);
  CHECK(left.size() == reached.size() - 1);
  CHECK_FALSE(left.contains(Phase::kDone));
}

TEST_CASE("Phases: what is not in the table is not counted") {
  PhaseCounts counts;
  CHECK(counts.Count(Phase::kRunning, Phase::kFencing));
  CHECK_FALSE(counts.Count(Phase::kDone, Phase::kRunning));
  CHECK_FALSE(counts.Count(Phase::kRunning, Phase::kRunning));
  uint64_t sum = 0;
  for (const uint64_t count : counts.all()) sum += count;
  CHECK(sum == 1);
  CHECK(counts.all()[*FindTransition(Phase::kRunning, Phase::kFencing)] == 1);
}

TEST_CASE("Phases: a run that takes another transition goes on, and says that it is a bug") {
  JobRecord record;
  *record.status.mutable_spec() = testing::MakeSpec();
  const Options options;
  GenerationSource generations;
  PhaseCounts counts;
  Run run(options, generations, counts, record);
  Actions actions;
  run.Stop("cancelled on request", AtMs(0), actions);  // a run without workers is never stopped
  CHECK(run.phase() == Phase::kStopping);
  const std::vector<Happening> told = run.TakeHappenings();
  REQUIRE(told.size() == 1);
  CHECK(told[0].type == event_type::kUnforeseen);
  CHECK(told[0].message.find("the job's run was [*] and becomes stopping") != std::string::npos);
  (void)run.Settle(AtMs(0), actions);  // nobody is waited for
  CHECK(run.phase() == Phase::kDone);
  CHECK(run.TakeHappenings().empty());
}

TEST_CASE("Phases: every transition is taken by some scenario") {
  std::vector<uint64_t> taken(std::size(kTransitions));
  for (const auto& entry : std::filesystem::directory_iterator(RINGMASTER_SCENARIOS)) {
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    const std::string told = PlayScenario(text.str(), {.everything = true, .taken = &taken});
    INFO(entry.path().filename().string());
    CHECK(told.find("Unforeseen") == std::string::npos);
  }
  for (size_t i = 0; i < taken.size(); ++i) {
    INFO("no scenario has: " << LineOf(kTransitions[i]));
    CHECK(taken[i] > 0);
  }
}

}  // namespace
}  // namespace ringmaster::coordinator
