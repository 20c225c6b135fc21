#include "coordinator/flags.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace ringmaster::coordinator {
namespace {

ParsedFlags Parse(std::vector<std::string> words) {
  words.insert(words.begin(), {"ringmaster", "--data-dir", "state"});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return ParseFlags(static_cast<int>(argv.size()), argv.data());
}

using std::chrono::milliseconds;

TEST_CASE("Flags of ringmaster: silence and lease") {
  const ParsedFlags defaults = Parse({});
  REQUIRE_FALSE(defaults.exit);
  CHECK(defaults.flags.options.silence == Options().silence);
  CHECK(defaults.flags.options.lease == Options().lease);
  CHECK(defaults.flags.options.heartbeat == Options().heartbeat);

  const ParsedFlags slow = Parse({"--silence-ms", "5000", "--worker-lease-ms", "10000"});
  REQUIRE_FALSE(slow.exit);
  CHECK(slow.flags.options.silence == milliseconds(5000));
  CHECK(slow.flags.options.lease == milliseconds(10000));
}

TEST_CASE("Flags of ringmaster: however short the silence is, several heartbeats fit into it") {
  const ParsedFlags quick = Parse({"--silence-ms", "100"});
  REQUIRE_FALSE(quick.exit);
  CHECK(quick.flags.options.heartbeat == milliseconds(25));
}

TEST_CASE("Flags of ringmaster: a silence that cannot be is a usage error") {
  for (const char* wrong : {"99", "60001", "4000"}) {  // the lease is 3000
    const ParsedFlags parsed = Parse({"--silence-ms", wrong});
    CHECK(parsed.exit);
    CHECK(parsed.exit_code == 2);
  }
}

}  // namespace
}  // namespace ringmaster::coordinator
