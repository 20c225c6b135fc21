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

  const ParsedFlags slow = Parse({"--silence", "5s", "--worker-lease", "10s"});
  REQUIRE_FALSE(slow.exit);
  CHECK(slow.flags.options.silence == milliseconds(5000));
  CHECK(slow.flags.options.lease == milliseconds(10000));
}

TEST_CASE("Flags of ringmaster: however short the silence is, several heartbeats fit into it") {
  const ParsedFlags quick = Parse({"--silence", "100ms"});
  REQUIRE_FALSE(quick.exit);
  CHECK(quick.flags.options.heartbeat == milliseconds(25));
}

TEST_CASE("Flags of ringmaster: a silence that cannot be is a usage error") {
  for (const char* wrong : {"99ms", "60001ms", "4s", "500"}) {  // the lease is 3s
    const ParsedFlags parsed = Parse({"--silence", wrong});
    CHECK(parsed.exit);
    CHECK(parsed.exit_code == 2);
  }
}

TEST_CASE("Flags of ringmaster: a quota has a unit, and none is none") {
  CHECK(Parse({}).flags.checkpoint_quota == UINT64_MAX);
  CHECK(Parse({"--checkpoint-quota", "2GiB"}).flags.checkpoint_quota == uint64_t{2} << 30);
  CHECK(Parse({"--checkpoint-quota", "much"}).exit_code == 2);
}

TEST_CASE("Flags of ringmaster: an overlap of authorities is two lives of a certificate or more") {
  CHECK(Parse({}).flags.authority_overlap == std::chrono::hours(14 * 24));
  CHECK(Parse({"--certificate-life", "30s"}).flags.authority_overlap == milliseconds(60'000));
  const ParsedFlags longer = Parse({"--certificate-life", "1h", "--authority-overlap", "3h"});
  REQUIRE_FALSE(longer.exit);
  CHECK(longer.flags.authority_overlap == std::chrono::hours(3));
  CHECK(Parse({"--certificate-life", "1h", "--authority-overlap", "119m"}).exit_code == 2);
}

TEST_CASE("Flags of ringmaster: --version is no error") {
  CHECK(Parse({"--version"}).exit);
  CHECK(Parse({"--version"}).exit_code == 0);
}

}  // namespace
}  // namespace ringmaster::coordinator
