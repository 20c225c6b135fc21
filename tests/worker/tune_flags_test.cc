#include "worker/tune_flags.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <initializer_list>

namespace ringmaster::worker {
namespace {

ParsedTuneFlags ParseTune(const std::vector<const char*>& arguments) {
  std::vector<const char*> words = {"tune"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return ParseTuneFlags(static_cast<int>(words.size()), words.data());
}

TEST_CASE("TuneFlags: a job file is enough") {
  unsetenv("RINGMASTER_DEVICE");
  unsetenv("RINGMASTER_KERNEL_TABLE");
  const ParsedTuneFlags parsed = ParseTune({"job.yaml"});
  REQUIRE_FALSE(parsed.exit);
  CHECK(parsed.flags.job_file == "job.yaml");
  CHECK(parsed.flags.device.kind == "cuda");
  CHECK_FALSE(parsed.flags.device.index);
  CHECK(parsed.flags.samples.empty());
  CHECK(parsed.flags.table == "kernel_table.txt");
  CHECK(parsed.flags.gradient_bits == GradientBits::kKept);
}

TEST_CASE("TuneFlags: all of them are understood") {
  const ParsedTuneFlags parsed =
      ParseTune({"--device", "cuda:1", "--samples", "32,64", "job.yaml", "--set", "batch=4",
                 "--set", "shards=2", "--table", "t.txt", "--data-root", "/data", "--narrow"});
  REQUIRE_FALSE(parsed.exit);
  CHECK(parsed.flags.job_file == "job.yaml");
  CHECK(parsed.flags.device.index == 1U);
  CHECK(parsed.flags.samples == std::vector<uint32_t>{32, 64});
  CHECK(parsed.flags.overrides == std::vector<std::string>{"batch=4", "shards=2"});
  CHECK(parsed.flags.table == "t.txt");
  CHECK(parsed.flags.data_root == "/data");
  CHECK(parsed.flags.gradient_bits == GradientBits::kMayBeRounded);
}

TEST_CASE("TuneFlags: the table that workers read is the one that is written") {
  setenv("RINGMASTER_KERNEL_TABLE", "/etc/table.txt", 1);
  CHECK(ParseTune({"job.yaml"}).flags.table == "/etc/table.txt");
  CHECK(ParseTune({"job.yaml", "--table", "t.txt"}).flags.table == "t.txt");
  unsetenv("RINGMASTER_KERNEL_TABLE");
}

TEST_CASE("TuneFlags: what is wrong ends with exit code 2") {
  const std::vector<std::vector<const char*>> cases = {
      {},
      {"job.yaml", "--samples", "0"},
      {"job.yaml", "--samples", "-1"},
      {"job.yaml", "--samples", "4,many"},
      {"job.yaml", "--device", "abacus"},
      {"job.yaml", "--cores", "2"},
      {"job.yaml", "other.yaml"},
  };
  for (const auto& words : cases) {
    const ParsedTuneFlags parsed = ParseTune(words);
    CHECK(parsed.exit);
    CHECK(parsed.exit_code == 2);
  }
}

}  // namespace
}  // namespace ringmaster::worker
