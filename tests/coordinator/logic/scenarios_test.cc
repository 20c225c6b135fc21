// Every file in scenarios/ is a story that must come out as it is written, and a test case:
// `coordinator_logic_test "Logic: scenario NAME"`, without `.txt`. After a wanted change of
// behaviour RINGMASTER_REWRITE=1 writes those that run anew; the difference is what a reviewer
// reads. RINGMASTER_TELL=everything prints what they leave out, too.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <system_error>

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
    if (std::getenv("RINGMASTER_REWRITE") != nullptr) std::ofstream(path_) << told;
    INFO(path_.filename().string());
    CHECK((told == written || std::getenv("RINGMASTER_REWRITE") != nullptr));
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

}  // namespace
}  // namespace ringmaster::coordinator
