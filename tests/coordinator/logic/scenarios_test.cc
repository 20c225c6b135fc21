// Every file in scenarios/ is a story that must come out as it is written. After a wanted change of
// behaviour RINGMASTER_REWRITE=1 writes them anew; the difference is what a reviewer reads.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "tests/coordinator/logic/scenario.h"

namespace ringmaster::coordinator {
namespace {

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST_CASE("Logic: every scenario comes out as it is written") {
  std::set<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(RINGMASTER_SCENARIOS)) {
    paths.insert(entry.path());
  }
  REQUIRE(paths.size() >= 20);
  for (const std::filesystem::path& path : paths) {
    const std::string written = ReadFile(path);
    const std::string told = PlayScenario(written);
    if (std::getenv("RINGMASTER_REWRITE") != nullptr) {
      std::ofstream(path) << told;
      continue;
    }
    INFO(path.filename().string());
    CHECK(told == written);
  }
}

}  // namespace
}  // namespace ringmaster::coordinator
