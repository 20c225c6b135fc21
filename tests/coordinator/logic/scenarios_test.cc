// Every file in scenarios/ is a story that must come out as it is written, and a test case:
// `coordinator_logic_test "Logic: scenario NAME"`, without `.txt`. After a wanted change of
// behaviour RINGMASTER_REWRITE=1 writes those that run anew; the difference is what a reviewer
// reads. RINGMASTER_TELL=everything prints what they leave out, too.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tests/coordinator/logic/scenario.h"
#include "tests/coordinator/logic/scenario_command.h"

namespace ringmaster::coordinator {
namespace {

namespace fs = std::filesystem;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::set<fs::path> ScenarioFiles() {
  std::set<fs::path> paths;
  std::error_code error;  // then there are too few, which a test below says
  for (const auto& entry : fs::directory_iterator(RINGMASTER_SCENARIOS, error)) {
    paths.insert(entry.path());
  }
  return paths;
}

std::string FirstDifference(const std::string& written, const std::string& told) {
  std::istringstream before(written), now(told);
  std::string expected, got;
  for (int line = 1; before || now; ++line) {
    if (!std::getline(before, expected)) expected = "(the end)";
    if (!std::getline(now, got)) got = "(the end)";
    if (expected != got) return fmt::format(":{}:\n{}\nbut now:\n{}", line, expected, got);
  }
  return "";
}

// A test case that is not a function: Catch2 has no macro for one.
class ScenarioTest : public Catch::ITestInvoker {
 public:
  explicit ScenarioTest(fs::path path) : path_(std::move(path)) {}

  void invoke() const override {
    const std::string written = ReadFile(path_);
    if (std::getenv("RINGMASTER_TELL") != nullptr) {
      std::cout << PlayScenario(written, {.everything = true});
    }
    const std::string told = PlayScenario(written);
    if (std::getenv("RINGMASTER_REWRITE") != nullptr) {
      std::ofstream(path_) << told;
      return;
    }
    INFO(path_.filename().string() << FirstDifference(written, told));
    CHECK((told == written));
  }

 private:
  const fs::path path_;
};

[[maybe_unused]] const bool kRegistered = [] {
  for (const fs::path& path : ScenarioFiles()) {
    const Catch::AutoReg registered(new ScenarioTest(path), CATCH_INTERNAL_LINEINFO, "",
                                    {"Logic: scenario " + path.stem().string(), "[scenario]"});
  }
  return true;
}();

std::string ReadAll(const fs::path& folder, const std::string& end) {
  std::string text;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool ends = name.size() >= end.size() && name.substr(name.size() - end.size()) == end;
    if (ends) text += ReadFile(entry.path());
  }
  return text;
}

// All that stands in double quotes and is of these characters.
std::set<std::string> Quoted(const std::string& text, const std::string& characters) {
  std::set<std::string> words;
  for (size_t at = text.find('"'); at != std::string::npos; at = text.find('"', at + 1)) {
    const size_t end = text.find_first_not_of(characters, at + 1);
    if (end == std::string::npos || text[end] != '"' || end == at + 1) continue;
    words.insert(text.substr(at + 1, end - at - 1));
  }
  return words;
}

TEST_CASE("Logic: scenarios are found") { CHECK(ScenarioFiles().size() >= 180); }

TEST_CASE("Logic: each word of a refusal and of a failure is in a scenario or a test") {
  const std::string told = ReadAll(RINGMASTER_SCENARIOS, ".txt") +
                           ReadAll(fs::path(RINGMASTER_SCENARIOS).parent_path(), "_test.cc");
  const std::string logic = ReadAll(RINGMASTER_LOGIC, ".cc");
  int words = 0;
  for (const std::string& word : Quoted(logic, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_")) {
    const bool of_two = word.find('_') != std::string::npos && word.back() != '_';
    if (!of_two) continue;
    INFO(word);
    CHECK((told.find(word + ":") != std::string::npos ||
           told.find('"' + word + '"') != std::string::npos ||
           told.find("failure: " + word + " ") != std::string::npos));
    ++words;
  }
  CHECK(words > 40);
}

TEST_CASE("Logic: each kind of event is told by a scenario") {
  const std::string told = ReadAll(RINGMASTER_SCENARIOS, ".txt");
  std::string kinds = ReadFile(fs::path(RINGMASTER_LOGIC) / "record.h");
  kinds = kinds.substr(kinds.find("namespace event_type {"));
  kinds = kinds.substr(0, kinds.find("}  // namespace event_type"));
  int events = 0;
  for (const std::string& kind :
       Quoted(kinds, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")) {
    if (kind == event_type::kUnforeseen) continue;  // of a bug alone
    INFO(kind);
    const bool note = told.find(" " + kind + ": ") != std::string::npos;
    CHECK((note || told.find(" " + kind + " info ") != std::string::npos ||
           told.find(" " + kind + " warning ") != std::string::npos ||
           told.find(" " + kind + " error ") != std::string::npos));
    ++events;
  }
  CHECK(events > 20);
}

// Whether a story is another one when this limit is twice as large.
bool DependsOn(const std::string& story, const std::string& limit) {
  try {
    return PlayScenario(story, {.stretched = limit}) != story;
  } catch (const std::exception&) {
    return true;  // it does not come to its end
  }
}

// The longest `wait` of a story, in milliseconds: the ones that last are played last.
uint64_t LongestWait(const std::string& story) {
  uint64_t longest = 0;
  for (size_t at = story.find("\nwait "); at != std::string::npos;
       at = story.find("\nwait ", at + 1)) {
    longest = std::max<uint64_t>(longest, std::stoull(story.substr(at + 6)));
  }
  return longest;
}

TEST_CASE("Logic: each limit of the coordinator runs out in a scenario") {
  std::vector<std::string> stories;
  for (const fs::path& path : ScenarioFiles()) {
    std::string story = ReadFile(path);
    if (!DependsOn(story, "")) stories.push_back(std::move(story));  // else its own test fails
  }
  std::sort(stories.begin(), stories.end(), [](const std::string& a, const std::string& b) {
    return std::pair(LongestWait(a), a) < std::pair(LongestWait(b), b);
  });
  for (const std::string& limit : LimitNames()) {
    if (limit == "show_devices") continue;  // figures of devices: devices_test.cc
    INFO(limit);
    CHECK(std::any_of(stories.begin(), stories.end(),
                      [&](const std::string& story) { return DependsOn(story, limit); }));
  }
}

}  // namespace
}  // namespace ringmaster::coordinator
